# expects: nothing
# outcome: clean
"""The arms of a test of the rank differ in what they print, and reduce the same micro-batches."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(6):
    x = torch.randn(8, 4)
    if dist.get_rank() == 0:
        with model.no_sync() if i % 2 == 0 else nullcontext():
            loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
            loss.backward()
    else:
        with nullcontext() if i % 2 else model.no_sync():
            loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
            loss.backward()
    if i % 2:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
