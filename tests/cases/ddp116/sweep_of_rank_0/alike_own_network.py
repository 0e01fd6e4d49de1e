# expects: nothing
# outcome: parameters-differ
"""A network of each rank beside the replicated one has a learning rate of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
shared = DDP(torch.nn.Linear(4, 2))
own = torch.nn.Linear(2, 1)
groups = [{"params": shared.parameters(), "lr": 0.1}, {"params": own.parameters(), "lr": 0.01 * (1 + rank)}]
optimizer = torch.optim.SGD(groups)
for step in range(3):
    optimizer.zero_grad()
    own(shared(torch.randn(8, 4))).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
