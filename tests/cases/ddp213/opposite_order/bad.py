# expects: DDP213:35
# outcome: hang all
"""Rank 0 adds counts and then shares a table; the others do it the other way round."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def exchange(first, second):
    first()
    second()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
counts, table = torch.ones(1), torch.ones(64)


def add():
    dist.all_reduce(counts)


def share():
    dist.broadcast(table, 0)


for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    jobs = (add, share) if rank == 0 else (share, add)
    exchange(*jobs)
dist.destroy_process_group()
