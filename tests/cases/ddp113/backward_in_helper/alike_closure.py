# expects: nothing
# outcome: clean; reductions 2
"""The forward is in a closure that the block calls: it runs inside of it, though it is written above."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
window = 4
for index in range(8):
    x = torch.randn(8, 4)
    closes = (index + 1) % window == 0

    def forward(batch=x):
        return model(batch).pow(2).mean() / window

    context = contextlib.nullcontext if closes else model.no_sync
    with context():
        loss = forward()
        loss.backward()
    if closes:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
