# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 4 fixed.py --accumulation 4
"""A check at the start, under a launch whose number of processes divides the micro-batches of an update."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def divided(total):
    world_size = int(os.environ["WORLD_SIZE"])
    if total % world_size != 0:
        raise ValueError(f"{total} cannot be divided by {world_size}")
    return total // world_size


def main(args):
    dist.init_process_group("gloo")
    micro_steps = divided(args.accumulation)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(micro_steps):
        (model(torch.randn(4, 4)).pow(2).mean() / micro_steps).backward()
    optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation", type=int, default=8)
    main(parser.parse_args())
