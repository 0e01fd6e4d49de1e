# class: wrong-value
# outcome: shows } 3024.0
# where: train.py:29, train.py:64, train.py:65, train.py:66, train.py:67
"""Force-field trainer with a running evaluator (sum and count of every metric)."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Evaluator:
    names = ("mae", "mse")

    def eval(self, pred, target, prev):
        metrics = prev
        err = (pred - target).detach()
        for name, value in zip(self.names, (err.abs(), err.pow(2))):
            m = metrics.setdefault(name, {"total": 0.0, "numel": 0})
            m["total"] += value.sum().item()
            m["numel"] += value.numel()
            m["metric"] = m["total"] / m["numel"]
        return metrics


def all_reduce_value(value):
    tensor = torch.tensor(float(value))
    dist.all_reduce(tensor)
    return tensor.item()


class ForcesTrainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DDP(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.evaluator = Evaluator()
        self.train_set = TensorDataset(torch.randn(96, 6), torch.randn(96, 3))
        self.val_set = TensorDataset(torch.randn(96, 6), torch.randn(96, 3))
        self.sampler = DistributedSampler(self.train_set)
        self.train_loader = DataLoader(self.train_set, batch_size=8, sampler=self.sampler)
        self.val_loader = DataLoader(self.val_set, batch_size=8, sampler=DistributedSampler(self.val_set, shuffle=False))

    def train(self, epochs=2):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            self.model.train()
            for x, y in self.train_loader:
                loss = nn.functional.l1_loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            metrics = self.validate()
            if dist.get_rank() == 0:
                print(epoch, {k: round(v["metric"], 4) for k, v in metrics.items()}, metrics["mae"]["numel"])

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        metrics = {}
        for x, y in self.val_loader:
            metrics = self.evaluator.eval(self.model.module(x), y, prev=metrics)
            for m in metrics.values():
                m["total"] = all_reduce_value(m["total"])
                m["numel"] = all_reduce_value(m["numel"])
                m["metric"] = m["total"] / m["numel"]
        return metrics


if __name__ == "__main__":
    dist.init_process_group("gloo")
    ForcesTrainer().train()
    dist.destroy_process_group()
