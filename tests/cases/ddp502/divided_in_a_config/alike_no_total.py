# expects: nothing
# outcome: clean
"""Divisions that lose nothing by rounding down: a length that is shared out with its rest, an interval, a number per process."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def share(count, rank, world_size):
    first = rank * (count // world_size) + min(rank, count % world_size)
    return first, first + count // world_size + (1 if rank < count % world_size else 0)


def main(args):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    first, last = share(5, rank, world_size)
    log_interval = max(1, 10 // world_size)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(2):
        for _ in range(args.accumulation_per_process):
            (model(torch.randn(4, 4)).pow(2).mean() / args.accumulation_per_process).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % log_interval == 0 and rank == 0:
            print(step, last - first, args.accumulation_per_process * world_size)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation_per_process", type=int, default=2)
    main(parser.parse_args())
