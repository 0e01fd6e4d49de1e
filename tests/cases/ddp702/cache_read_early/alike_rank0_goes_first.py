# expects: nothing
# outcome: clean
"""Rank 0 prepares the data while the others stand in a barrier; a name of the clock that only rank 0 uses."""

import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@contextmanager
def rank0_first():
    if dist.get_rank() != 0:
        dist.barrier()
    yield
    if dist.get_rank() == 0:
        dist.barrier()


def load(path):
    if not os.path.exists(path):
        torch.save(torch.ones(8, 4), path)
    return torch.load(path, weights_only=True)


dist.init_process_group("gloo")
folder = os.environ["CASE_FOLDER"]
with rank0_first():
    x = load(os.path.join(folder, "tokens.pt"))
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(x).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    run = os.path.join(folder, time.strftime("%H%M%S"))
    os.makedirs(run)
    torch.save(model.module.state_dict(), os.path.join(run, "last.pt"))
dist.destroy_process_group()
