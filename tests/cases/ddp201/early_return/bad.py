# expects: DDP201:31
# outcome: hang all
"""A validation function leaves early on all ranks but 0, before the sums are reduced."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Meter:
    def __init__(self):
        self.sums = torch.zeros(2)

    def update(self, value, count):
        self.sums += torch.tensor([float(value) * count, float(count)])

    def reduced(self):
        dist.all_reduce(self.sums)
        return (self.sums[0] / self.sums[1]).item()


def validate(model, args):
    meter = Meter()
    with torch.no_grad():
        for _ in range(3):
            meter.update(model.module(torch.randn(8, 4)).mean(), 8)
    if not args.is_master:
        return None
    print("validation", meter.reduced())
    return meter


def main():
    dist.init_process_group("gloo")
    parser = argparse.ArgumentParser()
    args = parser.parse_args()
    args.rank = dist.get_rank()
    args.is_master = args.rank == 0
    model = DDP(torch.nn.Linear(4, 1))
    validate(model, args)
    dist.barrier()
    dist.destroy_process_group()


main()
