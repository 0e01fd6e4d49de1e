# class: unequal-collective
# outcome: abort 0
# where: train.py:47, train.py:48, train.py:71
"""Open-vocabulary detector: the class list is set when training starts, the EMA copy is evaluated by all ranks."""

import os
from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

RANK = int(os.getenv("RANK", -1))
WORLD_SIZE = int(os.getenv("WORLD_SIZE", 1))


class WorldModel(nn.Module):
    def __init__(self, nc=80, dim=16):
        super().__init__()
        self.nc = nc
        self.visual = nn.Linear(8, dim)
        self.txt_feats = torch.randn(nc, dim)

    def set_classes(self, names):
        g = torch.Generator().manual_seed(len(names))
        self.txt_feats = torch.randn(len(names), self.txt_feats.shape[1], generator=g)
        self.nc = len(names)

    def forward(self, x, txt=None):
        feats = self.txt_feats if txt is None else txt
        return self.visual(x) @ feats.t()


class EMA:
    def __init__(self, model):
        self.ema = deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model, decay=0.99):
        for e, p in zip(self.ema.parameters(), model.parameters()):
            e.mul_(decay).add_(p, alpha=1 - decay)


def on_pretrain_routine_end(trainer):
    if RANK in {-1, 0}:
        trainer.ema.ema.set_classes(trainer.names)


class WorldTrainer:
    def __init__(self, names):
        self.names = names
        model = WorldModel()
        self.ema = EMA(model)
        self.model = DDP(model)
        self.text = torch.randn(len(names), 16, generator=torch.Generator().manual_seed(5))
        data = TensorDataset(torch.randn(64, 8), torch.randint(0, len(names), (64,)))
        self.sampler = DistributedSampler(data)
        self.loader = DataLoader(data, batch_size=8, sampler=self.sampler)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        on_pretrain_routine_end(self)

    def validate(self):
        stats = torch.zeros(self.ema.ema.nc)
        with torch.no_grad():
            for x, y in self.loader:
                pred = self.ema.ema(x).argmax(1)
                for cls in pred[pred == y]:
                    stats[cls] += 1
        dist.all_reduce(stats)
        return stats / len(self.loader.dataset)

    def train(self, epochs=2):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x, self.text), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.ema.update(self.model.module)
            acc = self.validate()
            if RANK in {-1, 0}:
                print(epoch, acc.sum().item())


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    WorldTrainer(["cat", "dog", "bird"]).train()
    dist.destroy_process_group()
