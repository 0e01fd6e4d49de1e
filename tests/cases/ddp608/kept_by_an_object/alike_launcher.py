# expects: nothing
# outcome: clean; shows rank 0 reports
"""Without a process group the rank comes from the launcher, and is right."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank):
    torch.manual_seed(1 + dist.get_rank())
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    if rank == 0:
        print(f"rank {dist.get_rank()} reports", flush=True)


def get_rank():
    return dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", 0))


rank = get_rank()
dist.init_process_group("gloo")
train(rank)
dist.destroy_process_group()
