# expects: nothing
# outcome: clean
"""A batch that is too short counts nothing, and goes through forward and backward all the same."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
used = 0
for index in range(4):
    x = torch.randn(8, 4) - (9 if rank == 1 and index == 2 else 0)
    loss = model(x).pow(2).mean()
    if x.max().item() < 0:
        loss = loss * 0.0
    else:
        used += 1
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(rank, used)
dist.destroy_process_group()
