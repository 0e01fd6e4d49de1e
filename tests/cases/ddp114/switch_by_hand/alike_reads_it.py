# expects: nothing
# outcome: clean; reductions 2
"""The switch is read, to log it; nothing sets it."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
seen = []
for index in range(4):
    last = index % 2 == 1
    with contextlib.nullcontext() if last else model.no_sync():
        seen.append(model.require_backward_grad_sync)
        (model(torch.randn(8, 4)).pow(2).mean() / 2).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
assert seen == [False, True] * 2
dist.destroy_process_group()
