# expects: nothing
# outcome: clean
"""The rank's own rows are written back, or joined beside the others; labels are gathered, which have no gradient."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 2, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(16, 4)[rank * 8 : rank * 8 + 8], torch.arange(8) % 2
rows = model(x)
found = [torch.empty_like(rows) for _ in range(world_size)]
dist.all_gather(found, rows)
found[rank] = rows
labels = [torch.empty_like(y) for _ in range(world_size)]
dist.all_gather(labels, y)
same = (torch.cat(labels)[:, None] == torch.cat(labels)).float()
every = torch.cat(found)
loss = ((every @ every.T - same) ** 2).mean()
loss.backward()
optimizer.step()
dist.destroy_process_group()
