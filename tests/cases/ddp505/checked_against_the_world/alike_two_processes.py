# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 2 alike_two_processes.py
"""The default of 6 micro-batches, which four processes could not divide, under a launch of two."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--gradient_accumulation_steps", type=int, default=6)
args = parser.parse_args()
dist.init_process_group("gloo")
assert args.gradient_accumulation_steps % dist.get_world_size() == 0
args.gradient_accumulation_steps //= dist.get_world_size()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(args.gradient_accumulation_steps):
    (model(torch.randn(4, 4)).pow(2).mean() / args.gradient_accumulation_steps).backward()
optimizer.step()
dist.destroy_process_group()
