"""Hooks on tensors and modules send during the backward."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def send(gradient):
    dist.all_reduce(torch.ones(5))


def sent(module, grad_input, grad_output):
    dist.all_reduce(torch.ones(6))


dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 3))
net[1].register_full_backward_hook(sent)
model = DDP(net)
for _ in range(3):
    output = model(torch.ones(2, 4))
    output.register_hook(send)
    output.sum().backward()
dist.destroy_process_group()
