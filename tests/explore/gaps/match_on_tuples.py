"""Statements of match with sequences, mappings and classes."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Stage:
    name: str
    size: int = 8


def size_of(command):
    match command:
        case ("reduce", int(size)):
            return size
        case ("pair", first, [second, *rest]) if rest:
            return first * second
        case ["skip", *_]:
            return 0
        case {"size": size, **others} if not others:
            return size
        case Stage(name="train", size=size):
            return size
        case Stage("test"):
            return 9
        case None | ():
            return 11
        case _:
            return 12


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
model(torch.ones(2, 4)).sum().backward()
commands = [
    ("reduce", 5), ("pair", 2, [3, 1]), ("skip", 1, 2), {"size": 7}, Stage("train"), Stage("test"), None, ("reduce", "x"), "ab",
]  # fmt: skip
for command in commands:
    size = size_of(command)
    if size:
        dist.all_reduce(torch.ones(size))
dist.destroy_process_group()
