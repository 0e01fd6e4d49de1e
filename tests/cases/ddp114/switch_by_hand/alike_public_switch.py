# expects: nothing
# outcome: clean
"""A composable replica has a public method that sets its switch, and no attribute of that kind is touched."""

import torch
import torch.distributed as dist
from torch.distributed._composable.replicate import replicate

dist.init_process_group("gloo")
torch.manual_seed(0)
model = replicate(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for index in range(4):
    model.set_requires_gradient_sync(index % 2 == 1)
    model(torch.randn(8, 4)).pow(2).mean().backward()
    if index % 2 == 1:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
