# expects: nothing
# outcome: clean
"""The switch is set after the backward, for the micro-batch that comes next."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
network = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
accumulate = 4
network.require_backward_grad_sync = False
for index in range(8):
    loss = network(torch.randn(8, 4)).pow(2).mean() / accumulate
    loss.backward()
    network.require_backward_grad_sync = (index + 2) % accumulate == 0
    if (index + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
