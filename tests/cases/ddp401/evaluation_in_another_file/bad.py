# expects: DDP401:14
# outcome: hang all
"""Rank 0 alone evaluates the wrapper, which is handed through a hook and a function, with gradients on; the model has BatchNorm."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def accuracy(network, batches):
    network.eval()
    total = 0.0
    for x in batches:
        total += network(x).mean().item()
    network.train()
    return total / len(batches)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.norm(x))


class Hook:
    """Evaluates after an epoch, on the main process."""

    def __init__(self, model, batches):
        self.model, self.batches = model, batches
        self.main = dist.get_rank() == 0

    def after_epoch(self, epoch):
        if not self.main:
            return
        print(epoch, accuracy(self.model, self.batches))


def main():
    dist.init_process_group("gloo")
    model = DDP(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook = Hook(model, [torch.randn(8, 4) for _ in range(2)])
    torch.manual_seed(dist.get_rank())
    for epoch in range(3):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
        hook.after_epoch(epoch)
    dist.destroy_process_group()


main()
