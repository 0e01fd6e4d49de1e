# expects: nothing
# outcome: clean
"""Moves the wrapped model to the device where it is, and a copy of it elsewhere for saving."""

import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
device = torch.device("cpu")
net = torch.nn.Linear(4, 1).to(device)
model = DDP(net).to(device).float()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    kept = copy.deepcopy(model.module).half().state_dict()
model.module.half()
dist.destroy_process_group()
