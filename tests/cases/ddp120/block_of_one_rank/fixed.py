# expects: nothing
# outcome: clean
"""Every rank leaves the first of two micro-batches unreduced."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(6):
    with model.no_sync() if i % 2 == 0 else nullcontext():
        x = torch.randn(8, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
        loss.backward()
    if i % 2:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
