# expects: nothing
# outcome: clean
"""Rank 0 looks at its clock and all ranks stop with it."""

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
        over = torch.tensor([time.monotonic() - started > args.seconds])
        dist.broadcast(over, src=0)
        if over.item():
            break
    dist.barrier()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.4)
    dist.init_process_group("gloo")
    run(parser.parse_args())
    dist.destroy_process_group()
