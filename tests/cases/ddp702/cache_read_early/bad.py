# expects: DDP702:18
# outcome: error 1: FileNotFoundError; hang 0
"""Rank 0 prepares the data and the others read it at once, without waiting for it."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def load(folder):
    path = os.path.join(folder, "tokens.pt")
    if dist.get_rank() == 0:
        time.sleep(0.3)
        torch.save(torch.ones(8, 4), path)
    return torch.load(path, weights_only=True)


dist.init_process_group("gloo")
x = load(os.environ["CASE_FOLDER"])
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(x).sum().backward()
optimizer.step()
dist.destroy_process_group()
