# expects: DDP203:22
# outcome: hang 1
"""Only the master has the score that ends the run, and it leaves while the others begin the next epoch."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
is_master = dist.get_rank() == 0
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
    if is_master:
        score = 1.0 / (epoch + 1)  # it gets worse with every epoch
        if score < 0.6:
            sys.exit()
dist.destroy_process_group()
