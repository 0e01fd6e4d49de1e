# expects: nothing
# outcome: clean
"""All ranks compute the score of a new point, and rank 0 prints it."""

import functools

import torch
import torch.distributed as dist


@functools.lru_cache(maxsize=64)
def score(point, scale=1.0):
    total = torch.tensor([point * scale + dist.get_rank()])
    dist.all_reduce(total)
    return total.item()


dist.init_process_group("gloo")
best = 1 if score(1) < score(2) else 2
following = score(3)
if dist.get_rank() == 0:
    print("best:", best, "next:", following, flush=True)
dist.barrier()
dist.destroy_process_group()
