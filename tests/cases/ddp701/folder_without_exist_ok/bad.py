# expects: DDP701:16
# outcome: error 1: FileExistsError; hang 0
"""Each rank makes the folder of the run, and a folder can be made once."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def prepare(root):
    runs = Path(root) / "runs"
    runs.mkdir()
    return runs


dist.init_process_group("gloo")
time.sleep(0.2 * dist.get_rank())
runs = prepare(os.environ["CASE_FOLDER"])
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
