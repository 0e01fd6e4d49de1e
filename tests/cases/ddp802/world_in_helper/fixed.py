# expects: nothing
# outcome: clean
"""A helper gives the mean of the rank's own samples; DDP takes the mean over the ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Scaled(torch.nn.Module):
    def __init__(self, processes):
        super().__init__()
        self.inner = torch.nn.CrossEntropyLoss()
        self.processes = processes

    def forward(self, logits, labels):
        return self.inner(logits, labels)


def train_step(model, criterion, optimizer, x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 4), torch.arange(8) % 3
part = slice(dist.get_rank() * 4, dist.get_rank() * 4 + 4)
train_step(model, Scaled(dist.get_world_size()), optimizer, x[part], y[part])
dist.destroy_process_group()
