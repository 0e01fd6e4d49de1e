# expects: DDP203:22
# outcome: hang 0
"""A rank whose own loss is above the limit leaves the backward out."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

LIMIT = 50.0

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    batch = torch.randn(8, 4)
    if rank == 1 and step == 1:
        batch *= 1000
    loss = model(batch).abs().mean()
    if loss.nelement() > 0 and loss < LIMIT:
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
