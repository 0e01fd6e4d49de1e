# ends: hangs
"""A loader of its own that gives rank 0 one batch more than the others: the last backward waits for ever."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ShardedLoader:
    def __init__(self, data, batch_size, rank, world_size):
        self.shard = data[rank::world_size]
        self.batch_size = batch_size

    def __len__(self):
        return (len(self.shard) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        for start in range(0, len(self.shard), self.batch_size):
            yield self.shard[start : start + self.batch_size]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    torch.manual_seed(0)
    data = torch.randn(41, 4)
    loader = ShardedLoader(data, 5, dist.get_rank(), dist.get_world_size())
    model = DDP(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
