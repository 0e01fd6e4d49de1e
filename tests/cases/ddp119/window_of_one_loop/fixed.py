# expects: nothing
# outcome: clean; reductions 2
"""One loop steps after every fourth batch and reduces that one alone."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
window = 4
batches = [torch.randn(8, 4) for _ in range(8)]
for i, x in enumerate(batches):
    full = (i + 1) % window == 0
    with nullcontext() if full else model.no_sync():
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / window
        loss.backward()
    if full:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
