# expects: nothing
# outcome: clean
"""Rank 0 loads after the wrap, and the program sends the parameters to the others itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
if dist.get_rank() == 0:
    model.module.load_state_dict({"weight": torch.ones(1, 4), "bias": torch.zeros(1)})
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
