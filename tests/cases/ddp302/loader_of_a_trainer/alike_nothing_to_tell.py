# expects: nothing
# outcome: clean
"""Samplers that need no epoch: one that does not shuffle, one of a single pass, one that is made anew with another seed."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def passes(model, optimizer, loader):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(32, 4))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    in_order = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows, shuffle=False))
    for _ in range(2):
        passes(model, optimizer, in_order)
    passes(model, optimizer, DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows)))
    for epoch in range(2):
        sampler = DistributedSampler(rows, shuffle=True, seed=epoch)
        passes(model, optimizer, DataLoader(rows, batch_size=4, sampler=sampler))
    dist.destroy_process_group()


main()
