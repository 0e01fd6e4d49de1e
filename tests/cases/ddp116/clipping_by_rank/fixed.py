# expects: nothing
# outcome: clean
"""All ranks clip their gradients to one norm."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank)
limit = 0.1
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    optimizer.step()
dist.destroy_process_group()
