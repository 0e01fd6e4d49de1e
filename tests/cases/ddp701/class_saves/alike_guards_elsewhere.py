# expects: nothing
# outcome: clean
"""The guards stand in the callee, in a decorator, and in an object that only rank 0 has."""

import functools
import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def rank_zero_only(function):
    @functools.wraps(function)
    def guarded(*args):
        return function(*args) if dist.get_rank() == 0 else None

    return guarded


class Writer:
    def __init__(self, path):
        self.path = path

    def write(self, loss):
        with open(self.path, "w") as file:
            json.dump({"loss": loss}, file)


def save(model, path):
    if dist.get_rank() != 0:
        return
    torch.save(model.module.state_dict(), path)


@rank_zero_only
def save_optimizer(optimizer, path):
    torch.save(optimizer.state_dict(), path)


dist.init_process_group("gloo")
folder = os.environ["CASE_FOLDER"]
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = Writer(os.path.join(folder, "loss.json")) if dist.get_rank() == 0 else None
loss = model(torch.ones(2, 4)).sum()
loss.backward()
optimizer.step()
save(model, os.path.join(folder, "model.pt"))
save_optimizer(optimizer, os.path.join(folder, "optimizer.pt"))
if writer is not None:
    writer.write(loss.item())
dist.destroy_process_group()
