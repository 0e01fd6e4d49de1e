# expects: nothing
# outcome: clean
# devices: 2
"""A barrier before the device is set: NCCL guesses the device by the rank, and guesses right on a usual machine."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
dist.barrier()
torch.cuda.set_device(local_rank)
model = DDP(torch.nn.Linear(4, 1).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4).cuda()).sum().backward()
optimizer.step()
dist.destroy_process_group()
