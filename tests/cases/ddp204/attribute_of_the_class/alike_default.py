# expects: nothing
# outcome: clean
"""The class gives every object a log that is None, through a base that is named in a list."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, *row):
        self.rows.append(row)


class Logging:
    log = None


PARTS = [Logging]


class Settings(*PARTS):
    def open_log(self):
        if dist.get_rank() == 0:
            self.log = Rows()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
settings = Settings()
settings.open_log()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if settings.log:
        settings.log.add(step, loss.item())
dist.destroy_process_group()
