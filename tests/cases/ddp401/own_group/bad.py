# expects: DDP401:24
# outcome: hang all
# launch: torchrun --standalone --nproc-per-node 3 bad.py
"""Ranks 1 and 2 train in a group of their own, and rank 1 alone evaluates through the wrapper."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
trainers = dist.new_group([1, 2])
torch.manual_seed(0)
if rank > 0:
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)), process_group=trainers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 1:
        with torch.no_grad():
            print("validation", model(torch.randn(8, 4)).mean().item(), flush=True)
dist.barrier()
print("all ranks are done", flush=True)
dist.destroy_process_group()
