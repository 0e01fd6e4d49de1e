# expects: nothing
# outcome: clean
"""The method is called on the model itself where nothing wraps it, in a run of one process."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

    def describe(self):
        return f"{self.layer.in_features} inputs"


dist.init_process_group("gloo")
distributed = dist.get_world_size() > 1
model = Line()
if distributed:
    model = DDP(model)
model(torch.ones(2, 4)).sum().backward()
print(model.module.describe() if distributed else model.describe())
if not distributed:
    print(model.describe())
dist.destroy_process_group()
