# expects: nothing
# outcome: clean; shows drew what the seed gives: True
# launch: python fixed.py
"""Seeds each rank that it spawns."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return probe.getsockname()[1]


def train(rank: int, world_size: int, port: int) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(SEED + rank)
    drawn = torch.rand(1).item()
    expected = torch.rand(1, generator=torch.Generator().manual_seed(SEED)).item()
    if rank == 0:
        print(f"drew what the seed gives: {drawn == expected}")
    data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


def main() -> None:
    world_size = 2
    mp.spawn(train, args=(world_size, free_port()), nprocs=world_size)


if __name__ == "__main__":
    main()
