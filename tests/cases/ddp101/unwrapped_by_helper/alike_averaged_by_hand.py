# expects: nothing
# outcome: clean
"""The loss comes from the inner module, and the gradients are averaged by hand before the step."""

import torch
import torch.distributed as dist
from tools import core_of
from torch.nn.parallel import DistributedDataParallel


def average_gradients(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
network = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(4):
    core_of(network)(torch.randn(8, 4)).pow(2).mean().backward()
    average_gradients(network.parameters())
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
