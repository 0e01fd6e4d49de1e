"""Folklore: no_sync() silences a forward. The buckets are rebuilt and the buffers broadcast in it all the same."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 3)).sum().backward()
optimizer.step()
optimizer.zero_grad()
for _ in range(2):
    for micro in range(3):
        if micro < 2:
            with model.no_sync():
                model(torch.randn(4, 3)).sum().backward()
        else:
            model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
