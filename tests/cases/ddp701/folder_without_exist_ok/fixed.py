# expects: nothing
# outcome: clean
"""Each rank makes the folder of the run, or finds it made."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def prepare(root):
    runs = Path(root) / "runs"
    runs.mkdir(exist_ok=True)
    return runs


dist.init_process_group("gloo")
time.sleep(0.2 * dist.get_rank())
runs = prepare(os.environ["CASE_FOLDER"])
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
