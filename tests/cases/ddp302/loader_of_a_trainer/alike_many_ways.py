# expects: nothing
# outcome: clean
"""The epoch reaches the samplers on ways that are easily overlooked: `and`, hasattr, a loop target, a method of the data."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset


class Batches(BatchSampler):
    def set_epoch(self, epoch):
        self.sampler.set_epoch(epoch)


class Data:
    def __init__(self, rows, distributed):
        self.rows = rows
        self.sampler = DistributedSampler(rows) if distributed else None
        self.loader = DataLoader(rows, batch_size=4, sampler=self.sampler)

    def set_epoch(self, epoch):
        if isinstance(self.sampler, DistributedSampler):
            self.sampler.set_epoch(epoch)


def passes(model, optimizer, loader):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    distributed = dist.get_world_size() > 1
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(32, 4))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    sampler = DistributedSampler(rows) if distributed else None
    loader = DataLoader(rows, batch_size=4, sampler=sampler)
    for epoch in range(2):
        sampler and sampler.set_epoch(epoch)
        passes(model, optimizer, loader)

    loader = DataLoader(rows, batch_size=4, sampler=DistributedSampler(rows))
    for epoch in range(2):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        passes(model, optimizer, loader)

    loader = DataLoader(rows, batch_sampler=Batches(DistributedSampler(rows), 4, False))
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        passes(model, optimizer, loader)

    state = {"epoch": 0}
    data = {"train": Data(rows, distributed)}
    for state["epoch"] in range(2):
        data["train"].set_epoch(state["epoch"])
        passes(model, optimizer, data["train"].loader)
    dist.destroy_process_group()


main()
