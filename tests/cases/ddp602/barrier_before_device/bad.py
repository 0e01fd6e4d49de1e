# expects: DDP602:15
# outcome: shows barrier on device 0 of rank 1
# devices: 2
"""The ranks meet in a barrier, which uses the current device, before they set theirs."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def meet():
    print(f"barrier on device {torch.cuda.current_device()} of rank {dist.get_rank()}", flush=True)
    dist.barrier()


local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
meet()
torch.cuda.set_device(local_rank)
model = DDP(torch.nn.Linear(4, 1).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4).cuda()).sum().backward()
optimizer.step()
dist.destroy_process_group()
