# ends: hangs
"""Evaluation on rank 0 alone through the wrapper: its buffers are broadcast, and nobody else comes."""

from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_model():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def train_epoch(model, optimizer, batches):
    model.train()
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


def check(model, batches):
    with torch.no_grad():
        return sum(float(model(batch).mean()) for batch in batches) / len(batches)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    rank = dist.get_rank()
    model = DDP(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = torch.randn(4, 8, 4).unbind(0)
    for epoch in range(2):
        train_epoch(model, optimizer, batches)
        if rank == 0:
            print(epoch, check(model, batches))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
