# expects: nothing
# outcome: clean
# devices: 2
"""The group has a device of its own, and everything else names the local rank."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl", device_id=device)
dist.barrier()
model = DDP(torch.nn.Linear(4, 1).to(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4).to(device)).sum().backward()
optimizer.step()
dist.destroy_process_group()
