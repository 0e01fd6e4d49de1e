"""PowerSGD sends whole buckets at first, then three all-reduces a bucket: what is not compressed, and two factors."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
for rank, start in ((1, 2), (4, 3)):
    model = DDP(nn.Sequential(nn.Linear(48, 40), nn.Linear(40, 12), nn.Linear(12, 2)))
    state = PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=start)
    model.register_comm_hook(state, powerSGD_hook)
    for _ in range(5):
        model(torch.ones(4, 48)).mean().backward()
dist.destroy_process_group()
