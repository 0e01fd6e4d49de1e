# expects: nothing
# outcome: clean
"""The group is destroyed by a function that the interpreter calls at its end."""

import atexit

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@atexit.register
def tear_down():
    if dist.is_initialized():
        dist.destroy_process_group()


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    model(torch.randn(8, 4)).pow(2).mean().backward()


main()
