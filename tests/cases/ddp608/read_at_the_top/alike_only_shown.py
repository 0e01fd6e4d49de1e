# expects: nothing
# outcome: clean; shows rank 0 reports
"""What was read too early is printed, and decides nothing."""

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


rank, world_size = 0, 1
if dist.is_initialized():
    rank, world_size = dist.get_rank(), dist.get_world_size()
dist.init_process_group("gloo")
print(f"started as {rank} of {world_size}", flush=True)
train(dist.get_rank())
dist.destroy_process_group()
