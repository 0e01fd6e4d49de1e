"""A container of modules is false where it is empty; a module is true."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(torch.nn.Module):
    def __init__(self, adapters):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        self.adapters = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in adapters})
        self.heads = torch.nn.ModuleList()
        self.activation = torch.nn.ReLU()

    def forward(self, x):
        x = self.body(x)
        if self.adapters:
            x = self.adapters["a"](x)
        return x if not self.activation else self.activation(x)


dist.init_process_group("gloo")
plain, adapted = DDP(Net([])), DDP(Net(["a"]))
for _ in range(2):
    for model in (plain, adapted):
        model(torch.ones(2, 4)).sum().backward()
if plain.module.adapters or plain.module.heads:
    dist.barrier()
if adapted.module.adapters and not torch.nn.Sequential():
    dist.all_reduce(torch.ones(5))
dist.destroy_process_group()
