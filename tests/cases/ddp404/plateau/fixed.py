# expects: nothing
# outcome: clean
"""Lowers the learning rate by the validation loss of all ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self) -> None:
        x = torch.arange(32.0).reshape(32, 1) / 32
        self.data = TensorDataset(x, 2 * x)
        self.loader = DataLoader(self.data, batch_size=4, sampler=DistributedSampler(self.data, shuffle=False))
        held_out = TensorDataset(x, torch.stack([x[::2], -x[1::2]], 1).reshape(32, 1))
        self.held_out = DataLoader(held_out, batch_size=4, sampler=DistributedSampler(held_out, shuffle=False))
        torch.manual_seed(0)
        self.model = DDP(torch.nn.Linear(1, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.1, patience=0)

    def train(self) -> None:
        for x, y in self.loader:
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), y).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self) -> float:
        total, count = 0.0, 0
        for x, y in self.held_out:
            total += torch.nn.functional.mse_loss(self.model(x), y, reduction="sum").item()
            count += len(x)
        return self.average(total, count)

    def average(self, total: float, count: int) -> float:
        sums = torch.tensor([total, float(count)])
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).item()

    def run(self) -> None:
        for _ in range(4):
            self.train()
            val_loss = self.validate()
            self.scheduler.step(val_loss)


dist.init_process_group("gloo")
Trainer().run()
dist.destroy_process_group()
