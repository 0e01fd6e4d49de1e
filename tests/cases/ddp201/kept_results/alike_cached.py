# expects: nothing
# outcome: clean
"""Rank 0 asks again for scores that all ranks have computed together: they are kept, and nothing is sent for them."""

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
if dist.get_rank() == 0:
    print("best:", best, score(best), flush=True)
dist.barrier()
dist.destroy_process_group()
