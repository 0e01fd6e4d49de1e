# ends: raises AssertionError
"""An assertion on the world size fails on all ranks after the wrapper was made."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TOTAL_BATCH = 9


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(2, 1))
    world = dist.get_world_size()
    assert TOTAL_BATCH % world == 0, f"{TOTAL_BATCH} does not divide by {world}"
    for _ in range(3):
        model(torch.randn(TOTAL_BATCH // world, 2)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
