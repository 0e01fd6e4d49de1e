# expects: DDP802:24
# outcome: wrong-factor 4
"""Accumulates 4 micro-batches; their mean losses are added up and never divided."""

import argparse
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default=4)
args = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.randn(2, 4, 8, 4)[dist.get_rank()]
for i, x in enumerate(data):
    last = (i + 1) % args.accum == 0
    with nullcontext() if last else model.no_sync():
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
    if (i + 1) % args.accum == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
