# ends: raises ValueError
"""A check that fails on one rank raises there; the other is left in its next collective."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def check_shard(shard, minimum=8):
    if len(shard) < minimum:
        raise ValueError(f"shard has {len(shard)} samples, at least {minimum} are needed")


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    rank, world = dist.get_rank(), dist.get_world_size()
    samples = list(range(15))
    shard = samples[rank::world]
    model = DDP(nn.Linear(1, 1))
    check_shard(shard)
    for value in shard:
        model(torch.tensor([[float(value)]])).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
