# expects: nothing
# outcome: clean
"""No sampler divides the data, but they are cut by rank before a loader sees them: a slice with a stride, a split, a subset."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset


def train(model, loader, epochs=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    every = torch.randn(32, 4)
    model = DDP(torch.nn.Linear(4, 1))
    train(model, DataLoader(TensorDataset(every[rank::world_size]), batch_size=4, shuffle=True))
    train(model, DataLoader(TensorDataset(every.split(32 // world_size)[rank]), batch_size=4, shuffle=True))
    train(model, DataLoader(TensorDataset(every.chunk(world_size)[rank]), batch_size=4))
    data = TensorDataset(every)
    train(model, DataLoader(Subset(data, range(rank, len(data), world_size)), batch_size=4, shuffle=True))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
