# expects: DDP205:17
# outcome: hang 0
"""Each rank keeps its share of three sizes and reduces what it kept."""

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
found = [size for number, size in enumerate(sizes) if number % 2 == rank]
for one in found:
    dist.all_reduce(one)
dist.destroy_process_group()
