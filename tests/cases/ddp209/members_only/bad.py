# expects: DDP209:14
# outcome: hang all
"""A class makes the group of the writers on the writers alone; the next group has another number on the other ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Groups:
    def __init__(self, rank):
        self.writers = None
        if rank == 0:
            self.writers = dist.new_group([0])
        self.metrics = dist.new_group()


dist.init_process_group("gloo")
groups = Groups(dist.get_rank())
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total, group=groups.metrics)
dist.destroy_process_group()
