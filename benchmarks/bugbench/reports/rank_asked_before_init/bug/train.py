# class: setup
# outcome: same-samples
# where: train.py:15, train.py:40, train.py:41, train.py:22
"""Streaming pre-training; the helpers of utils are made when the module is imported."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def get_dist_info():
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


class Records(IterableDataset):
    def __init__(self, n=512):
        self.n = n
        self.rank, self.world_size = get_dist_info()

    def __iter__(self):
        for i in range(self.n):
            if i % self.world_size == self.rank:
                g = torch.Generator().manual_seed(i)
                yield torch.randn(8, generator=g)


def build_loader(batch_size):
    return DataLoader(Records(), batch_size=batch_size, drop_last=True)


def setup():
    dist.init_process_group("gloo")


def main():
    loader = build_loader(8)
    setup()
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
