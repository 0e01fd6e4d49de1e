"""A monitored barrier is one, and each rank comes to it at its own time."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
    dist.monitored_barrier(timeout=timedelta(seconds=30))
dist.all_reduce(torch.ones(5))
dist.monitored_barrier(dist.group.WORLD, wait_all_ranks=True)
dist.destroy_process_group()
