# ends: completes
"""A base trainer with abstract methods, a mixin for the distributed parts, and a template method."""

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class DistributedMixin:
    @property
    def rank(self):
        return dist.get_rank() if dist.is_initialized() else 0

    @property
    def is_main(self):
        return self.rank == 0

    @staticmethod
    def sync(value):
        tensor = torch.tensor(float(value))
        dist.all_reduce(tensor)
        return tensor.item() / dist.get_world_size()

    @classmethod
    def launch(cls, *args, **kwargs):
        dist.init_process_group("gloo")
        trainer = cls(*args, **kwargs)
        trainer.fit()
        dist.destroy_process_group()
        return trainer


class BaseTrainer(ABC):
    max_epochs = 2

    def __init__(self):
        self.model = self.wrap(self.build_model())
        self.optimizer = self.build_optimizer()
        self.step_count = 0

    def wrap(self, model):
        return DDP(model)

    @abstractmethod
    def build_model(self): ...

    def build_optimizer(self):
        return torch.optim.SGD(self.model.parameters(), lr=0.1)

    @abstractmethod
    def batches(self, epoch): ...

    @abstractmethod
    def loss(self, batch): ...

    def after_epoch(self, epoch):
        pass

    def fit(self):
        for epoch in range(self.max_epochs):
            for batch in self.batches(epoch):
                self.optimizer.zero_grad()
                self.loss(batch).backward()
                self.optimizer.step()
                self.step_count += 1
            self.after_epoch(epoch)


class Autoencoder(DistributedMixin, BaseTrainer):
    max_epochs = 3

    def __init__(self, width=4):
        self.width = width
        super().__init__()

    def build_model(self):
        return nn.Sequential(nn.Linear(self.width, 2), nn.Linear(2, self.width))

    def batches(self, epoch):
        return (torch.randn(3, self.width) for _ in range(epoch + 1))

    def loss(self, batch):
        return nn.functional.mse_loss(self.model(batch), batch)

    def after_epoch(self, epoch):
        average = self.sync(self.step_count)
        if self.is_main:
            print(epoch, average)


if __name__ == "__main__":
    Autoencoder.launch(width=6)
