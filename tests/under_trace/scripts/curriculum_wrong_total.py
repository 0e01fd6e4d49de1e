# ends: raises AssertionError
"""Curriculum stages from a table; a wrong total makes the final check fail on all ranks."""

from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

STAGES = [{"steps": 2, "batch": 4}, {"steps": 3, "batch": 2}]


def stage_of(step):
    for index, end in enumerate(accumulate(stage["steps"] for stage in STAGES)):
        if step < end:
            return STAGES[index]
    return STAGES[-1]


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    samples = 0
    for step in range(sum(s["steps"] for s in STAGES)):
        batch = torch.randn(stage_of(step)["batch"], 2)
        samples += len(batch) * dist.get_world_size()
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    assert samples == 30, samples
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
