# expects: nothing
# outcome: clean
"""Windows in order, each rank at an offset of its own; random numbers are drawn for noise, not for places."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    data = torch.linspace(0, 1, 200)
    batch, block = 4, 8
    position = rank * batch * block
    model = DDP(torch.nn.Linear(block, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x = data[position : position + batch * block].view(batch, block)
        position += batch * block * world_size
        noise = torch.randn(batch, block) * torch.randint(0, 2, (batch, 1))
        optimizer.zero_grad()
        model(x + 0.01 * noise).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
