# expects: nothing
# outcome: clean
"""Gradients are accumulated without no_sync(): every backward reduces, so any step is a right one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, optimizer, batches, window=4):
    for index, x in enumerate(batches, start=1):
        (model(x).pow(2).mean() / window).backward()
        if index % window == 0 or index == len(batches):
            optimizer.step()
            optimizer.zero_grad()


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
torch.manual_seed(dist.get_rank())
train(model, torch.optim.SGD(model.parameters(), lr=0.1), [torch.randn(8, 4) for _ in range(6)])
dist.destroy_process_group()
