# expects: nothing
# outcome: clean
"""Contiguous shares of equal length, a count that the ranks agree on, and a loop over a share without anything collective."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model, optimizer, x):
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
data = torch.randn(7, 4)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
each = len(data) // world_size
for x in data[rank * each : (rank + 1) * each]:
    train(model, optimizer, x)
mine = data[rank::world_size]
count = torch.tensor(len(mine))
dist.all_reduce(count, op=dist.ReduceOp.MIN)
for i in range(int(count.item())):
    train(model, optimizer, mine[i])
total = 0.0
for x in mine:
    total += x.sum().item()
print(total, flush=True)
dist.destroy_process_group()
