"""Under join() a rank that is out of inputs answers the others' collectives, and the highest rank that is left owns the buffers."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    with model.join():
        for _ in range(2 + 2 * dist.get_rank()):
            optimizer.zero_grad()
            model(torch.randn(4, 4)).mean().backward()
            optimizer.step()
dist.destroy_process_group()
