# expects: nothing
# outcome: clean
"""Rank 0 sends its loss once, and rank 1 receives it once."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
net = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(3):
    optimizer.zero_grad()
    loss = net(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
scores = torch.zeros(1)
if rank == 0:
    dist.send(loss.detach().reshape(1), 1)
else:
    dist.recv(scores, 0)
dist.destroy_process_group()
