# expects: nothing
# outcome: clean
"""An attribute of the same name on an object of the project's own, which it reads in its own backward."""

import torch
import torch.distributed as dist


class Averaged(torch.nn.Module):
    """Averages gradients by itself where its switch says so."""

    def __init__(self, module):
        super().__init__()
        self.module = module
        self.require_backward_grad_sync = True

    def forward(self, x):
        return self.module(x)

    def backward(self, loss):
        loss.backward()
        if self.require_backward_grad_sync:
            for parameter in self.module.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
network = Averaged(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for index in range(8):
    loss = network(torch.randn(8, 4)).pow(2).mean() / 4
    network.require_backward_grad_sync = (index + 1) % 4 == 0
    network.backward(loss)
    if (index + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
