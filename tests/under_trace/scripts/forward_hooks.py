# ends: completes
"""Forward hooks that collect activations, and a hook on a parameter's gradient."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

activations = {}


def keep(name):
    def hook(module, inputs, output):
        activations[name] = output.detach()

    return hook


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(5, 7), nn.ReLU())
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        return self.head(self.features(x))


def main():
    dist.init_process_group("gloo")
    net = Net()
    handles = [module.register_forward_hook(keep(name)) for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    net.head.weight.register_hook(lambda grad: grad.clamp(-1, 1))
    model = DDP(net)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    for step in range(3):
        out = model(torch.randn(6, 5))
        out.logsumexp(dim=1).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        for name in sorted(activations):
            norm = activations[name].norm()
            dist.all_reduce(norm, op=dist.ReduceOp.MAX)
    for handle in handles:
        handle.remove()
    activations.clear()
    dist.barrier()
    dist.destroy_process_group()


main()
