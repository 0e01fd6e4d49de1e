# expects: nothing
# outcome: clean
"""Objects are sent by a group that has no devices."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
names = ["first" if dist.get_rank() == 0 else None]
dist.broadcast_object_list(names, src=0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
dist.destroy_process_group()
