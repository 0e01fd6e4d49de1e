# ends: completes
"""Generators: an endless loader, islice for the steps, send for the learning rate, yield from."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def cycle(loader):
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def decayed(start):
    value = start
    while True:
        factor = yield value
        value *= factor or 1.0


def main():
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(22, 3))
    loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rates = decayed(0.1)
    next(rates)
    for step, (batch,) in enumerate(itertools.islice(cycle(loader), 7)):
        optimizer.param_groups[0]["lr"] = rates.send(0.9)
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
    iterator = iter(cycle(loader))
    for _ in range(2):
        (batch,) = next(iterator)
        model(batch).mean().backward()
    total = sum(1 for _ in loader)
    for _ in range(total):
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
