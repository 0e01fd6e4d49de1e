# expects: DDP114:21
# outcome: clean
"""A train function sets the wrapper's switch before each forward: right today, through an attribute that is no interface."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def micro_batches(count):
    for number in range(count):
        yield number == count - 1, torch.randn(8, 4)


def train(model, optimizer, args):
    for _ in range(args.updates):
        for last, x in micro_batches(args.accumulation):
            if isinstance(model, DistributedDataParallel):
                model.require_backward_grad_sync = last
            (model(x).pow(2).mean() / args.accumulation).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--accumulation", type=int, default=4)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    torch.manual_seed(dist.get_rank())
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), args)
    dist.destroy_process_group()
