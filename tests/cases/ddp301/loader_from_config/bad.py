# expects: DDP301:27
# outcome: same-samples
"""A loader that a helper makes from a configuration shuffles alike on all ranks: nobody gave it a sampler."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


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
        self.loader = make_loader(TensorDataset(x, x.sum(1, keepdim=True)), config.data)
        self.model = DDP(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run_epoch(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    def fit(self):
        for _ in range(self.config.epochs):
            self.run_epoch()


def main(config):
    dist.init_process_group("gloo")
    torch.manual_seed(config.seed)
    Trainer(config).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
