"""Hooks around the forwards of modules send."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def before(module, args):
    dist.all_reduce(torch.ones(5))


def after(module, args, output):
    dist.all_reduce(output.detach().clone())
    return output * 2


dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 3))
net[0].register_forward_pre_hook(before)
handle = net[1].register_forward_hook(after)
model = DDP(net)
for step in range(3):
    model(torch.ones(2, 4)).sum().backward()
    if step == 1:
        handle.remove()
dist.destroy_process_group()
