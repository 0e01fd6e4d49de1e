# expects: nothing
# outcome: clean
"""The loss has a weight outside of the wrapper; its gradient is averaged in the loop."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4))
temperature = torch.nn.Parameter(torch.ones(()))
optimizer = torch.optim.SGD([*model.parameters(), temperature], lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    (model(torch.randn(8, 4)) * temperature).square().mean().backward()
    dist.all_reduce(temperature.grad)
    temperature.grad /= dist.get_world_size()
    optimizer.step()
dist.destroy_process_group()
