"""A forward uses slices of a parameter, as position embeddings are used."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pos = torch.nn.Parameter(torch.zeros(1, 16, 4))
        self.scale = torch.nn.Parameter(torch.ones(4, 2))
        self.head = torch.nn.Linear(4, 3)

    def forward(self, x):
        n = x.shape[1]
        return self.head((x + self.pos[:, :n]) * self.scale[:, 0])


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 5, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
