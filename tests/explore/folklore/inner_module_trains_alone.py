"""Folklore: model.module(x) is the same forward. Nothing is reduced, and no error says so."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model.module(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
total = torch.zeros(5, dtype=torch.float64)
dist.all_reduce(total)
dist.destroy_process_group()
