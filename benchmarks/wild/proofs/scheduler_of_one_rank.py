# expects: nothing
# outcome: parameters-differ
"""Rank 0 alone steps the scheduler, so the ranks apply equal gradients with learning rates of their own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
for epoch in range(4):
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    if rank == 0 and scheduler:
        scheduler.step()
dist.destroy_process_group()
