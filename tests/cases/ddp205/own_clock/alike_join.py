# expects: nothing
# outcome: clean
"""Ranks with shares of different lengths in a Join context; the optimizer is stateless."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
data = torch.randn(7, 4)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with Join([model]):
    for x in data[rank::world_size]:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
dist.destroy_process_group()
