# expects: nothing
# outcome: clean
"""Normalises each sample by itself, in groups of channels; a buffer holds a constant table."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.GroupNorm(2, 4)
        self.head = torch.nn.Linear(4, 1)
        self.register_buffer("scale", torch.linspace(1, 2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x) * self.scale)


dist.init_process_group("gloo")
data = TensorDataset(torch.arange(128.0).reshape(32, 4) / 64)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DDP(Network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
