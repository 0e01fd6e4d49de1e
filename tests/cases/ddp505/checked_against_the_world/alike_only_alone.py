# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 4 alike_only_alone.py
"""A check of the remainder that a distributed run does not reach, and one that it reaches and passes."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

accumulation = 6
batch_size = 8
ddp = int(os.environ.get("RANK", -1)) != -1
if ddp:
    dist.init_process_group("gloo")
    assert batch_size % dist.get_world_size() == 0
    batch_size //= dist.get_world_size()
else:
    assert accumulation % 4 == 0
model = torch.nn.Linear(4, 1)
if ddp:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(int(os.environ.get("RANK", 0)))
for _ in range(accumulation):
    (model(torch.randn(batch_size, 4)).pow(2).mean() / accumulation).backward()
optimizer.step()
if ddp:
    dist.destroy_process_group()
