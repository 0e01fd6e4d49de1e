# ends: hangs
"""Early stopping on each rank by its own loss: rank 0 leaves first."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Stopper:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def step(self, value):
        if value < self.best:
            self.best, self.bad = value, 0
            return False
        self.bad += 1
        return self.bad > self.patience


def validation_loss(epoch):
    return 1.0 + dist.get_rank() * (5 - epoch)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stopper = Stopper(patience=1)
    for epoch in range(5):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(4, 3)).mean().backward()
            optimizer.step()
        if stopper.step(validation_loss(epoch)):
            print("stopped in", epoch)
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
