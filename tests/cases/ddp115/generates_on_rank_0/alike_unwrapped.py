# expects: nothing
# outcome: clean
"""The method is looked up on whatever is inside, with the two usual ways to ask whether something is inside."""

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


def name(model):
    inner = getattr(model, "module", model)
    return inner.describe()


def other_name(model):
    if hasattr(model, "module"):
        model = model.module
    return model.describe()


def third_name(model):
    return model.module.describe() if isinstance(model, DDP) else model.describe()


dist.init_process_group("gloo")
model = DDP(Line())
model(torch.ones(2, 4)).sum().backward()
if dist.get_rank() == 0:
    print(name(model), other_name(model), third_name(model))
dist.destroy_process_group()
