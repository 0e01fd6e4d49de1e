"""Folklore: a forward without backward has no effect. It arms the reducer, and a backward under no_sync() reduces."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(4, 3))
    with model.no_sync():
        model(torch.randn(4, 3)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
