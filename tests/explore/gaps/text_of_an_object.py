"""The text of an object decides what is sent."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Phase:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name

    def __repr__(self):
        return f"Phase({self.name!r})"


class Sized:
    def __format__(self, spec):
        return spec * 2


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
for phase in (Phase("train"), Phase("test")):
    if f"{phase}" == "train":
        model(torch.ones(2, 4)).sum().backward()
        dist.all_reduce(torch.ones(5))
    if str(phase) == "test" and f"{phase!r}" == "Phase('test')":
        dist.all_reduce(torch.ones(6))
if f"{Sized():a}" == "aa":
    dist.all_reduce(torch.ones(7))
dist.destroy_process_group()
