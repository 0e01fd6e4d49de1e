# expects: DDP202:25
# outcome: hang all
"""A checkpoint class of another file gathers the divided optimizer, and only rank 0 is sent there."""

import os

import torch
import torch.distributed as dist
from checkpoint import Checkpoint
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank, epochs=2):
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    checkpoint = Checkpoint(os.environ["CASE_FOLDER"], rank)
    torch.manual_seed(rank)
    for epoch in range(epochs):
        for _ in range(2):
            model(torch.randn(8, 4)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if rank == 0 and epoch % 2 == 0:
            checkpoint.save(model.module, optimizer)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
