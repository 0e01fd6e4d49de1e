# expects: nothing
# outcome: clean; reductions 2
"""Forward and backward of all micro-batches but the last run in no_sync()."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Accumulator:
    def __init__(self, model, optimizer, window):
        self.model, self.optimizer, self.window = model, optimizer, window

    def micro_step(self, x, index):
        if index % self.window:
            with self.model.no_sync():
                (self.model(x).pow(2).mean() / self.window).backward()
            return
        (self.model(x).pow(2).mean() / self.window).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    accumulator = Accumulator(model, torch.optim.SGD(model.parameters(), lr=0.1), window=4)
    torch.manual_seed(dist.get_rank())
    for index in range(1, 9):
        accumulator.micro_step(torch.randn(8, 4), index)
    dist.destroy_process_group()


main()
