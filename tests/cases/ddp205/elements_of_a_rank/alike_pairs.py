# expects: nothing
# outcome: clean
"""What each rank makes of all three pairs is its own, and there are three on every rank."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
sizes = [torch.tensor(float(number)) for number in range(3)]
found = [size - rank * other for size, other in zip(sizes, reversed(sizes))]
for one in found:
    dist.all_reduce(one)
dist.destroy_process_group()
