"""Containers that are subclassed, filled by pairs, extended and updated; parameters that are unpacked and iterated."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Blocks(torch.nn.ModuleList):
    pass


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(2, 4))
        self.b = torch.nn.Parameter(torch.ones(3, 4))
        self.c = torch.nn.Parameter(torch.ones(4))
        self.d = torch.nn.Parameter(torch.ones(2, 2, 4))
        self.blocks = Blocks([torch.nn.Linear(4, 4) for _ in range(2)])
        self.more = torch.nn.ModuleDict([["x", torch.nn.Linear(4, 4)], ["y", torch.nn.Linear(4, 4)]])
        self.ps = torch.nn.ParameterList()
        self.ps.extend([torch.nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.pd = torch.nn.ParameterDict()
        self.pd.update({"u": torch.nn.Parameter(torch.ones(4))})

    def forward(self, x):
        first, second = self.a
        for row in self.b:
            x = x + row
        x = x * self.c[None, :] + first * second
        x = x + self.d[0, ..., :].sum(0)
        for block in self.blocks:
            x = block(x)
        for name in self.more:
            x = self.more[name](x)
        x = x + sum(self.ps) + self.pd.u if hasattr(self.pd, "u") else x
        return x


dist.init_process_group("gloo")
model = DDP(Net())
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
if len(model.module.blocks) == 2 and "y" in model.module.more and "z" not in model.module.more:
    dist.all_reduce(torch.ones(9))
dist.destroy_process_group()
