# expects: nothing
# outcome: clean
"""All ranks draw the weights of the wrapped model anew under one seed, and seed their own streams afterwards."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(nn.Linear(4, 1))
torch.manual_seed(7)
nn.init.xavier_uniform_(model.module.weight)
torch.manual_seed(8 + dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
