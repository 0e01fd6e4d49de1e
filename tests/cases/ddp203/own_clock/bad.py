# expects: DDP203:25
# outcome: hang all
"""Each rank stops when its own clock has run out, in a run that trains as long as it may."""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def run(args):
    rank = dist.get_rank()
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    started = time.monotonic() - rank * args.seconds / 2
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        elapsed = time.monotonic() - started
        if elapsed > args.seconds:
            break
    dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.4)
    dist.init_process_group("gloo")
    run(parser.parse_args())
    dist.destroy_process_group()
