# expects: nothing
# outcome: clean
"""Whether there are several processes is read from the environment, where every launcher tells it."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()

model = torch.nn.Linear(4, 1)
if int(os.environ.get("WORLD_SIZE", 1)) > 1:
    dist.init_process_group("gloo")
    model = DDP(model)
else:
    print("trains alone")
torch.manual_seed(int(os.environ.get("RANK", 0)))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
for _ in range(3):
    model(torch.randn(4, 4)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
