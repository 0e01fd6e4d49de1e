# expects: nothing
# outcome: clean
"""BatchNorm that keeps no running statistics stands in a network that a frozen part of a teacher guides."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4, track_running_stats=False)
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(x))


dist.init_process_group("gloo")
teacher = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)).eval()
for parameter in teacher.parameters():
    torch.nn.init.ones_(parameter)
data = TensorDataset(torch.arange(128.0).reshape(32, 4) / 64)
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
model = DDP(Network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    with torch.no_grad():
        target = teacher(x)
    optimizer.zero_grad()
    (model(x) - target).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
