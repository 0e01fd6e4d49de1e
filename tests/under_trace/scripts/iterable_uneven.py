# ends: hangs
"""An IterableDataset whose shards are not equal: 7 lines over two ranks."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset

LINES = "one two|three four|five six|seven|eight nine|ten|eleven twelve".split("|")


class Text(IterableDataset):
    def __init__(self, lines, rank, world):
        self.lines, self.rank, self.world = lines, rank, world

    def __iter__(self):
        for i, line in enumerate(self.lines):
            if i % self.world == self.rank:
                yield torch.tensor([len(word) for word in line.split()], dtype=torch.float32).mean()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    data = Text(LINES, dist.get_rank(), dist.get_world_size())
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for lengths in DataLoader(data, batch_size=1):
        loss = model(lengths.unsqueeze(1)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
