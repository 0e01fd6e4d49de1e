# ends: hangs
"""A helper of rank 0 returns early and so leaves out the all-reduce that the others issue."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Logger:
    def __init__(self, rank):
        self.rank = rank
        self.lines = []

    def log(self, step, loss):
        if self.rank == 0:
            self.lines.append((step, loss.item()))
            return
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        self.lines.append((step, mean.item() / dist.get_world_size()))


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    logger = Logger(dist.get_rank())
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.randn(2, 4)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 3:
            logger.log(step, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
