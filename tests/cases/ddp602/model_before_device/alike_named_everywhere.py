# expects: nothing
# outcome: clean
# devices: 2
"""No process sets a device: every tensor is put on the one of the local rank by name, and nothing uses the current one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
model = DDP(torch.nn.Linear(4, 1).to(f"cuda:{local_rank}"), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4).to(f"cuda:{local_rank}")).sum().backward()
optimizer.step()
dist.destroy_process_group()
