# expects: nothing
# outcome: clean; shows rank 0 reports
"""The rank that was read too early is used before there is a group, and read again afterwards."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def is_distributed():
    return dist.is_available() and dist.is_initialized()


def get_rank():
    if not is_distributed():
        return 0
    return dist.get_rank()


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


rank = get_rank()
if rank == 0:
    print("starts", flush=True)
dist.init_process_group("gloo")
rank = get_rank()
train(rank)
dist.destroy_process_group()
