"""Folklore: every backward of a wrapped model reduces. Of two forwards and then two backwards, the first does."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
critic = DDP(torch.nn.Linear(3, 1))
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    real = critic(torch.randn(4, 3)).mean()
    fake = critic(torch.randn(4, 3)).mean()
    (-real).backward()
    fake.backward()
    optimizer.step()
dist.destroy_process_group()
