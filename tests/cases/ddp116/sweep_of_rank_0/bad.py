# expects: DDP116:18
# outcome: parameters-differ
"""Rank 0 alone takes the settings of a sweep."""

import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
config = {"lr": 0.1, "weight_decay": 0.0}
if rank == 0:
    config.update(lr=random.choice([0.2, 0.3]), weight_decay=0.1)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"])
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
