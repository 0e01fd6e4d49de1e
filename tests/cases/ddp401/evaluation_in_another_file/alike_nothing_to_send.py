# expects: nothing
# outcome: clean
"""Rank 0 alone evaluates wrappers that have nothing to send: no buffers, and buffers with their broadcast turned off."""

import torch
import torch.distributed as dist
from evaluation import evaluate
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            evaluate(model, [torch.randn(8, 4)])


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train(DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 1))))
train(DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)), broadcast_buffers=False))
dist.barrier()
dist.destroy_process_group()
