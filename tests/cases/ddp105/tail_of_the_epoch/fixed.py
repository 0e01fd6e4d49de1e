# expects: nothing
# outcome: clean
"""A trainer steps on the last batch of an epoch, too, and synchronises wherever it steps."""

from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


@dataclass
class Config:
    window: int = 2
    epochs: int = 2
    lr: float = 0.1


class Trainer:
    def __init__(self, config):
        self.config = config
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.lr)

    def closes(self, index, length):
        return (index + 1) % self.config.window == 0 or index + 1 == length

    def epoch(self, loader):
        for index, (x,) in enumerate(loader):
            closes = self.closes(index, len(loader))
            with nullcontext() if closes else self.model.no_sync():
                loss = self.model(x).pow(2).mean() / self.config.window
                loss.backward()
            if closes:
                self.optimizer.step()
                self.optimizer.zero_grad()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 4))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    config = Config()
    trainer = Trainer(config)
    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        trainer.epoch(loader)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
