"""A hook on a parameter sends when the gradient of that parameter is made, between the buckets of others."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def send(gradient):
    dist.all_reduce(torch.ones(5))


dist.init_process_group("gloo")
net = torch.nn.Linear(4, 4)
net.bias.register_hook(send)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
