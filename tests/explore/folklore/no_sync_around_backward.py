"""Folklore: no_sync() around the backward keeps it from reducing. The forward decides."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    for micro in range(3):
        loss = model(torch.randn(4, 3)).mean() / 3
        if micro < 2:
            with model.no_sync():
                loss.backward()
        else:
            loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
