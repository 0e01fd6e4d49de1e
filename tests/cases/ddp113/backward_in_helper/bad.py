# expects: DDP113:16
# outcome: reductions 8
"""A helper runs the backward of all micro-batches but the last in no_sync(); their forwards ran outside of it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Accumulator:
    def __init__(self, model, optimizer, window):
        self.model, self.optimizer, self.window = model, optimizer, window

    def backward(self, loss, index):
        if index % self.window:
            with self.model.no_sync():
                loss.backward()
            return
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    accumulator = Accumulator(model, torch.optim.SGD(model.parameters(), lr=0.1), window=4)
    torch.manual_seed(dist.get_rank())
    for index in range(1, 9):
        loss = model(torch.randn(8, 4)).pow(2).mean() / accumulator.window
        accumulator.backward(loss, index)
    dist.destroy_process_group()


main()
