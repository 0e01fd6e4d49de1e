# expects: nothing
# outcome: clean; shows sent over device 1 of rank 1
# devices: 2
"""Rank 0 sends the name of the run, which goes by the current device, after they set theirs."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def shared_name():
    print(f"sent over device {torch.cuda.current_device()} of rank {dist.get_rank()}", flush=True)
    names = ["first" if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names, src=0)
    return names[0]


local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(local_rank)
name = shared_name()
model = DDP(torch.nn.Linear(4, 1).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4).cuda()).sum().backward()
optimizer.step()
dist.destroy_process_group()
