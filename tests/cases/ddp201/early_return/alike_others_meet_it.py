# expects: nothing
# outcome: clean
"""Branches by rank that all issue the same collectives: a tensor that rank 0 fills, paired barriers, and either branch's reduce."""

import contextlib

import torch
import torch.distributed as dist


@contextlib.contextmanager
def first_on_rank_0():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def agreed(value):
    tensor = torch.tensor([value]) if dist.get_rank() == 0 else torch.zeros(1, dtype=torch.long)
    dist.broadcast(tensor, 0)
    return int(tensor)


def total(value):
    if dist.get_rank() == 0:
        dist.reduce(value, 0)
        return value.item()
    dist.reduce(value, 0)
    return None


dist.init_process_group("gloo")
with first_on_rank_0():
    seed = 3
print(agreed(seed), total(torch.ones(1)))
dist.destroy_process_group()
