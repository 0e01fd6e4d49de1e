# expects: nothing
# outcome: clean
"""The loss is averaged over the ranks before it is looked at, by a helper that gives a dict of means back."""

import math
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def reduce_dict(values):
    names = sorted(values)
    stacked = torch.stack([values[name].detach() for name in names])
    dist.all_reduce(stacked)
    stacked /= dist.get_world_size()
    return dict(zip(names, stacked))


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        out = model(torch.randn(8, 4))
        losses = {"square": out.pow(2).mean(), "size": out.abs().mean()}
        loss = sum(losses.values())
        reduced = reduce_dict(losses)
        value = sum(reduced.values()).item()
        if not math.isfinite(value):
            print("loss is", value)
            sys.exit(1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


main()
