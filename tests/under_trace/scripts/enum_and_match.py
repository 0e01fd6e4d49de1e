# ends: completes
"""Enums, match statements and a walrus decide what a step does."""

import enum

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Phase(enum.Enum):
    WARMUP = "warmup"
    TRAIN = "train"
    EVAL = "eval"


PLAN = [("warmup", 2), ("train", 3), ("eval", 1), ("train", 1)]


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    queue = list(PLAN)
    while entry := (queue.pop(0) if queue else None):
        name, count = entry
        for i in range(count):
            match Phase(name):
                case Phase.WARMUP:
                    optimizer.param_groups[0]["lr"] = 0.1 * (i + 1) / count
                    model(torch.randn(2, 3)).sum().backward()
                    optimizer.zero_grad()
                case Phase.TRAIN if i % 2 == 0:
                    model(torch.randn(2, 3)).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                case Phase.EVAL:
                    with torch.no_grad():
                        score = model.module(torch.ones(1, 3)).squeeze()
                    dist.all_reduce(score)
                case _:
                    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
