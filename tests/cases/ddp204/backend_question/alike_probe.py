# expects: nothing
# outcome: clean
"""Asks whether the backend knows an operation, which fails on all ranks or on none, and goes another way without it."""

import torch
import torch.distributed as dist


def fetch(path):
    try:
        dist.barrier()
        if dist.get_rank() == 0:
            print("fetching", path, flush=True)
    finally:
        dist.barrier()  # a rank that fails comes here with the others


dist.init_process_group("gloo")
known = False
try:
    tried = torch.zeros([2])
    dist.all_to_all_single(tried, tried.clone())
    known = True
except RuntimeError as error:
    print("not known here:", error, flush=True)
fetch("data")
values = torch.ones(2) * dist.get_rank()
for _ in range(2):
    if known:
        dist.all_to_all_single(torch.empty(2), values)
    else:
        dist.all_reduce(values)
dist.destroy_process_group()
