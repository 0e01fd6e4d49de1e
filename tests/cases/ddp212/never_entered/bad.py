# expects: DDP212:16
# outcome: shows files: 0
"""Compares the function that gives the rank with a number: no rank writes the file."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

FOLDER = Path(os.environ["CASE_FOLDER"])


def save(model, step):
    if dist.get_rank == 0 and step == 2:
        torch.save(model.module.state_dict(), FOLDER / f"{step}.pt")


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
    save(model, step)
dist.barrier()
print("files:", len(list(FOLDER.glob("*.pt"))), flush=True)
dist.destroy_process_group()
