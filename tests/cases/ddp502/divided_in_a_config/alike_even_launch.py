# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 2 alike_even_launch.py --accumulation 6
"""The same division under a launch with which nothing is left over."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--accumulation", type=int, default=5)
args = parser.parse_args()
dist.init_process_group("gloo")
args.accumulation //= dist.get_world_size()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(args.accumulation):
    (model(torch.randn(4, 4)).pow(2).mean() / args.accumulation).backward()
optimizer.step()
dist.destroy_process_group()
