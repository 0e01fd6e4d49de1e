"""With use_local_synchronization only members make a group; without it every rank has to, members or not."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
own = None
if dist.get_rank() == 0:
    own = dist.new_group([0], use_local_synchronization=True)
both = dist.new_group([0, 1])
if dist.get_rank() == 0:
    dist.all_reduce(torch.ones(3), group=own)
dist.all_reduce(torch.ones(5), group=both)
model = DDP(nn.Linear(4, 4), process_group=both)
model(torch.ones(2, 4)).mean().backward()
dist.destroy_process_group()
