"""Folklore: an evaluation on rank 0 through the wrapper hangs. Without gradients it crosses and heals itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 1))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    if rank == 0 and step == 3:
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model(torch.randn(4, 6))
        model.train()
    model(torch.randn(4, 6)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
