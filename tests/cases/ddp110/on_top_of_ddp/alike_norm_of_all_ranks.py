# expects: nothing
# outcome: clean
"""Beside DDP the program reduces a norm and a count for its log; no gradient is changed."""

import torch
import torch.distributed as dist
from net import batch, build
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(build())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(3):
    optimizer.zero_grad()
    model(batch(number)[dist.get_rank() :: dist.get_world_size()]).square().mean().backward()
    grad_norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    dist.all_reduce(grad_norm)
    optimizer.step()
dist.destroy_process_group()
