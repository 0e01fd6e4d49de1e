# expects: nothing
# outcome: clean
"""Every rank evaluates on the whole of a small set, without a sampler; the training set is divided by an iterator with an offset."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class Windows:
    """Batches of a long row of numbers, each rank at an offset of its own."""

    def __init__(self, numbers, batch, rank, world_size):
        self.numbers, self.batch, self.world_size = numbers, batch, world_size
        self.position = rank * batch

    def next_batch(self):
        if self.position + self.batch > len(self.numbers):
            self.position = 0
        rows = self.numbers[self.position : self.position + self.batch]
        self.position += self.batch * self.world_size
        return rows


@torch.no_grad()
def evaluate(model, loader):
    return sum(model.module(x).pow(2).mean().item() for (x,) in loader) / len(loader)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    windows = Windows(torch.randn(64, 4), 8, dist.get_rank(), dist.get_world_size())
    validation = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=8)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(windows.next_batch()).pow(2).mean().backward()
        optimizer.step()
    print(evaluate(model, validation))
    dist.destroy_process_group()


main()
