# expects: nothing
# outcome: clean
"""Buffers that are the same on every rank: a count of steps, a table, a schedule that follows from both."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.register_buffer("steps", torch.zeros(1))
        self.register_buffer("table", torch.linspace(0, 1, 8))
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("temperature", torch.ones(1))
        self.last = torch.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        self.seen += x.shape[0]
        self.temperature[0] = self.table[int(self.steps) % 8]
        self.last = x.detach().mean(0)
        return self.linear(x) * self.temperature


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(Network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(2, 2)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
