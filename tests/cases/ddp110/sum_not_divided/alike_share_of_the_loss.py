# expects: nothing
# outcome: clean
"""The sum needs no division: each rank's loss is its share of the loss of all."""

import torch
import torch.distributed as dist
from net import batch, build

dist.init_process_group("gloo")
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = batch(step)[dist.get_rank() :: dist.get_world_size()]
    optimizer.zero_grad()
    loss = model(x).square().mean() / dist.get_world_size()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
