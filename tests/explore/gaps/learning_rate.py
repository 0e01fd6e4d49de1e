"""Settings are read from the groups of optimizers: given by name and by position, and defaults."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
other = torch.optim.AdamW([{"params": [model.module.weight]}, {"params": [model.module.bias], "lr": 0.5}])
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if optimizer.param_groups[0]["lr"] > 0.05:
        dist.all_reduce(torch.ones(5))
    if optimizer.param_groups[0]["momentum"] != 0.9 or optimizer.param_groups[0]["nesterov"]:
        dist.all_reduce(torch.ones(6))
    for group in other.param_groups:
        if group["lr"] == 0.001 and group["betas"][0] == 0.9:
            dist.all_reduce(torch.ones(7))
        group["lr"] = 0.001
dist.destroy_process_group()
