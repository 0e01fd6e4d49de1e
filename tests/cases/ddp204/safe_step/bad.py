# expects: DDP204:12
# outcome: hang 0
"""One rank runs out of memory in one step, and goes on with the next."""

import torch
import torch.distributed as dist
from steps import safe_step
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(8, 4)
    if rank == 1 and step == 1:
        x[0] = float("nan")
    safe_step(model, optimizer, x)
dist.destroy_process_group()
