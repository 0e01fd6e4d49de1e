"""Folklore: find_unused_parameters costs traffic only for unused ones. A map is reduced in every step, last."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.second = torch.nn.Linear(4, 2, bias=False)
        self.spare = torch.nn.Linear(4, 2)

    def forward(self, x, spare=False):
        hidden = torch.relu(self.first(x))
        return self.spare(hidden) if spare else self.second(hidden)


model = DDP(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(4, 3), spare=step == 1).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
