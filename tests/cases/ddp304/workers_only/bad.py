# expects: DDP304:16
# outcome: same-samples
"""Trains on a stream that divides itself among the workers of a loader, and not among the processes."""

import torch
import torch.distributed as dist
from streams import Rows
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Experiment:
    def __init__(self) -> None:
        self.model = DDP(torch.nn.Linear(1, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loader = DataLoader(Rows(32), batch_size=4)

    def step(self, batch: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(batch).square().mean().backward()
        self.optimizer.step()

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            for batch in self.loader:
                self.step(batch)


dist.init_process_group("gloo")
Experiment().run(epochs=1)
dist.destroy_process_group()
