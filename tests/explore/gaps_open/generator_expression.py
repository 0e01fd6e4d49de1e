"""The elements of a generator expression are made one by one, each when it is asked for."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def sent(size):
    dist.all_reduce(torch.ones(size))
    return size


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sizes = (sent(size) for size in (5, 6, 7))
for _ in range(2):
    next(sizes)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
