# expects: nothing
# outcome: clean
"""Saves the first broadcast, over weights that all processes draw under one seed."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(3)
model = DDP(torch.nn.Linear(4, 1), init_sync=False)
torch.manual_seed(3 + dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
