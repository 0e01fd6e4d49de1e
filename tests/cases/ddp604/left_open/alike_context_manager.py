# expects: nothing
# outcome: clean
"""A generator makes the group and destroys it after the block, also when the block fails."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@contextlib.contextmanager
def process_group(backend):
    dist.init_process_group(backend)
    try:
        yield dist.get_rank()
    finally:
        dist.destroy_process_group()


def main():
    with process_group("gloo") as rank:
        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(4, 1))
        model(torch.randn(8, 4)).pow(2).mean().backward()


main()
