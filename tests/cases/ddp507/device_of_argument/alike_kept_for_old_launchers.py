# expects: nothing
# outcome: clean
# devices: 2
"""The option is still accepted, so that old job files go on working; the local rank comes from the environment."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def local_rank(args):
    return int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else args.local_rank


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=0, help="set by launchers of the old kind")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.cuda.set_device(local_rank(args))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        model(torch.randn(4, 4)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


main()
