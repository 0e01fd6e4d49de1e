# expects: DDP213:26
# outcome: hang 1
"""A callback ends rank 0 after two steps, by a function from a list."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

ENDS = [sys.exit, abs]


def finish(step):
    if step == 1:
        ENDS[dist.get_rank()](0)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hooks = [finish]
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    for hook in hooks:
        hook(step)
dist.destroy_process_group()
