# expects: DDP503:21
# outcome: shows learning rate 0.0500
"""The schedule is made for the length of a loader that was there before the data was shared out."""

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, data, epochs, batch):
        self.epochs = epochs
        self.count = DataLoader(data, batch_size=batch)
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=batch, sampler=self.sampler)
        self.model = DDP(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, math.ceil(len(self.count)) * self.epochs)

    def fit(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            self.one_epoch()
        return self.schedule.get_last_lr()[0]

    def one_epoch(self):
        for (rows,) in self.loader:
            self.model(rows).pow(2).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    last = Trainer(TensorDataset(torch.randn(32, 4)), 2, 4).fit()
    print(f"learning rate {last:.4f}")
    dist.destroy_process_group()


main()
