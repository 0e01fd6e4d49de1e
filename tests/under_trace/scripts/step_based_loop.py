# ends: completes
"""Trained by steps, not epochs: the iterator is begun again on StopIteration, evaluation every few steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pairs(Dataset):
    def __init__(self, count):
        self.items = [(i, i * 2 + 1) for i in range(count)]

    def __getitem__(self, i):
        a, b = self.items[i]
        return {"x": torch.tensor([a / 10.0]), "y": torch.tensor([b / 10.0])}

    def __len__(self):
        return len(self.items)


def collate(items):
    return {key: torch.stack([item[key] for item in items]) for key in items[0].keys()}


class Runner:
    def __init__(self, total_steps):
        data = Pairs(26)
        self.sampler = DistributedSampler(data, seed=3)
        self.loader = DataLoader(data, batch_size=5, sampler=self.sampler, collate_fn=collate)
        self.total_steps = total_steps
        self.model = DDP(nn.Linear(1, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.epoch = 0
        self.iterator = None

    def next_batch(self):
        if self.iterator is None:
            self.sampler.set_epoch(self.epoch)
            self.iterator = iter(self.loader)
        try:
            return next(self.iterator)
        except StopIteration:
            self.epoch += 1
            self.iterator = None
            return self.next_batch()

    def run(self):
        step = 0
        while step < self.total_steps:
            batch = self.next_batch()
            self.optimizer.zero_grad()
            nn.functional.l1_loss(self.model(batch["x"]), batch["y"]).backward()
            self.optimizer.step()
            step += 1
            if step % 4 == 0:
                self.evaluate()

    def evaluate(self):
        with torch.inference_mode():
            value = self.model.module(torch.ones(1, 1)).mean().clone()
        dist.reduce(value, 0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    runner = Runner(total_steps=9)
    runner.run()
    assert runner.epoch == 2, runner.epoch
    dist.destroy_process_group()
