"""Folklore: static_graph changes nothing in the traffic. Its first reduction sends a map first and comes at the end."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)), static_graph=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(4, 3)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
