"""A generator that nobody holds any longer runs its `finally` at once."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def numbers():
    try:
        while True:
            yield 1
    finally:
        dist.all_reduce(torch.ones(5))


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pairs = dict(zip("ab", numbers()))
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
