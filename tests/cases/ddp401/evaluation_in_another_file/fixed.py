# expects: nothing
# outcome: clean
"""Rank 0 alone evaluates the inner module, in a function of another file; the model has BatchNorm."""

import torch
import torch.distributed as dist
from evaluation import accuracy
from torch.nn.parallel import DistributedDataParallel as DDP


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
    hook = Hook(model.module, [torch.randn(8, 4) for _ in range(2)])
    torch.manual_seed(dist.get_rank())
    for epoch in range(3):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
        hook.after_epoch(epoch)
    dist.destroy_process_group()


main()
