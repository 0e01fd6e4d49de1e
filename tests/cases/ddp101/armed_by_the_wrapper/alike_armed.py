# expects: nothing
# outcome: clean
"""A wrapped forward arms the reducer; its result is dropped, and the backward of the inner module's loss is reduced all the same."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    x = torch.randn(8, 4)
    model(x)
    loss = model.module(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
