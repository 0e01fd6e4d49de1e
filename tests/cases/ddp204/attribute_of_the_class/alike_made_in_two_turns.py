# expects: nothing
# outcome: clean
"""Rank 0 makes the settings first and the others after a barrier; a helper of the constructor fills them."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, *row):
        self.rows.append(row)


class Settings:
    def __init__(self):
        self.load()

    def load(self):
        self.log = Rows()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
if dist.get_rank() == 0:
    settings = Settings()
dist.barrier()
if dist.get_rank() != 0:
    settings = Settings()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    settings.log.add(step, loss.item())
dist.destroy_process_group()
