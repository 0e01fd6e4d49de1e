# expects: nothing
# outcome: clean
"""Distils from a teacher that is outside of the wrapper, frozen, and in no optimizer."""

import copy

import torch
import torch.distributed as dist
from model import Encoder, distribute

dist.init_process_group("gloo")
torch.manual_seed(0)
net = Encoder()
teacher = copy.deepcopy(net).requires_grad_(False)
model = distribute(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    x = torch.randn(8, 4)
    with torch.no_grad():
        target = teacher(x)
    loss = (model(x) - target - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, its in zip(teacher.parameters(), net.parameters(), strict=True):
            mine.lerp_(its, 0.1)
dist.destroy_process_group()
