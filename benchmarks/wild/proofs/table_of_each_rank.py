# expects: DDP701:28
# outcome: shows 8 of 16 rows
"""Every rank writes the table of results of its own share to one file, and the last one stays."""

import csv
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(16, 4))
sampler = DistributedSampler(data, shuffle=False)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()

path = os.path.join(os.environ.get("CASE_FOLDER", "."), "valid_results.csv")
time.sleep(rank)
with open(path, "w", newline="") as file, torch.no_grad():
    writer = csv.writer(file)
    for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
        writer.writerows([value] for value in model.module(x).flatten().tolist())
dist.barrier()
if rank == 0:
    with open(path) as file:
        print(f"{len(file.readlines())} of {len(data)} rows", flush=True)
dist.destroy_process_group()
