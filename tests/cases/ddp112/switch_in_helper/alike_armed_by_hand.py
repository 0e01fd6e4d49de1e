# expects: nothing
# outcome: clean
"""The switch is turned on after the forward, and the reducer is armed by hand, as libraries do."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def synchronise_backward(network):
    network.require_backward_grad_sync = True
    network.require_forward_param_sync = True
    network.reducer.prepare_for_backward([])


dist.init_process_group("gloo")
network = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(3):
    for micro_step in range(2):
        network.require_backward_grad_sync = False
        loss = network(torch.randn(8, 4)).pow(2).mean() / 2
        if micro_step == 1:
            synchronise_backward(network)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
