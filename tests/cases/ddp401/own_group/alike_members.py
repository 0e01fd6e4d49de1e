# expects: nothing
# outcome: shows all ranks are done
# launch: torchrun --standalone --nproc-per-node 3 alike_members.py
"""The members of a list train in a group of their own; rank 0 holds the data and trains nothing."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
members = [1, 2]
trainers = dist.new_group(members)
torch.manual_seed(0)
if rank in members:
    model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)), process_group=trainers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
dist.barrier()
print("all ranks are done", flush=True)
dist.destroy_process_group()
