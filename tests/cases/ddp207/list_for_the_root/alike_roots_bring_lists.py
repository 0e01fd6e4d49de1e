# expects: nothing
# outcome: clean
"""The root brings the list in a branch of its own, the others an empty one or none; the same for scatter and for objects."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
value = loss.detach()
if rank == 0:
    values = [torch.zeros_like(value) for _ in range(world_size)]
    dist.gather(value, values, dst=0)
else:
    dist.gather(value, [], dst=0)
parts = [torch.ones(2), torch.zeros(2)] if rank == 0 else None
mine = torch.empty(2)
dist.scatter(mine, parts, src=0)
found = [None] * world_size if not rank else None
dist.gather_object({"rank": rank}, found)
dist.destroy_process_group()
