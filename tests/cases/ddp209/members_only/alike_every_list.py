# expects: nothing
# outcome: clean
"""Every rank makes the groups of all, and keeps the one that it is in."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def own_group(size):
    rank, mine = dist.get_rank(), None
    for first in range(0, dist.get_world_size(), size):
        ranks = list(range(first, first + size))
        group = dist.new_group(ranks)
        if rank in ranks:
            mine = group
    return mine


dist.init_process_group("gloo")
group = own_group(1)
pair = own_group(2)
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total, group=group)
    dist.all_reduce(total, group=pair)
dist.destroy_process_group()
