"""Folklore: an error in a step can be caught and the loop go on. After one in a backward every forward raises."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
net = torch.nn.Linear(3, 2)
model = DDP(net, find_unused_parameters=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
failed = 0
for step in range(4):
    if step == 1:
        net.bias.requires_grad_(False)
    try:
        model(torch.randn(4, 3)).mean().backward()
        optimizer.step()
    except RuntimeError:
        failed += 1
    optimizer.zero_grad()
assert failed == 2, failed
total = torch.ones(3)
dist.all_reduce(total, op=dist.ReduceOp.MAX)
dist.destroy_process_group()
