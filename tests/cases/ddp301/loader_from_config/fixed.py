# expects: nothing
# outcome: clean
"""A loader that a helper makes from a configuration is given a sampler that divides the data by rank."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class DataConfig:
    batch_size: int = 8
    workers: int = 0


@dataclass
class Config:
    seed: int = 5
    epochs: int = 2
    data: DataConfig = field(default_factory=DataConfig)


def make_loader(data, config, sampler=None):
    return DataLoader(data, config.batch_size, shuffle=sampler is None, sampler=sampler, num_workers=config.workers)


class Trainer:
    def __init__(self, config):
        self.config = config
        x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        data = TensorDataset(x, x.sum(1, keepdim=True))
        self.loader = make_loader(data, config.data, DistributedSampler(data))
        self.model = DDP(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    def fit(self):
        for epoch in range(self.config.epochs):
            self.run_epoch(epoch)


def main(config):
    dist.init_process_group("gloo")
    torch.manual_seed(config.seed)
    Trainer(config).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
