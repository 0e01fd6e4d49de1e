# expects: nothing
# outcome: clean
"""Clip and step stand under one condition; what is evaluated every second step has nothing to do with either."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    x = torch.randn(8, 4)
    last = (i + 1) % 2 == 0
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
    loss.backward()
    if last:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if last:
        optimizer.step()
        optimizer.zero_grad()
    if i % 2 == 0 and dist.get_rank() == 0:
        print(i, loss.item())
dist.destroy_process_group()
