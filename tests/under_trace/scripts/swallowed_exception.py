# ends: hangs
"""A broken sample is skipped on the rank that has it, with the step: the other rank waits in its backward."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES = ["1 2", "3 4", "5 6", "7 x", "9 8", "2 1"]


def parse(line):
    return torch.tensor([float(word) for word in line.split()])


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    skipped = 0
    for line in SAMPLES[rank::world]:
        try:
            sample = parse(line)
        except ValueError:
            skipped += 1
            continue
        loss = model(sample).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("skipped", skipped)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
