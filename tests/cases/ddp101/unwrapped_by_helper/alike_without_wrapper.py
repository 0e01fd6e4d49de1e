# expects: nothing
# outcome: clean
"""The same helper, on a module that nothing wraps in a run of one process; with more processes the wrapper is there and used."""

import torch
import torch.distributed as dist
from tools import core_of
from torch.nn.parallel import DistributedDataParallel


def run(network, distributed):
    if distributed:
        network = DistributedDataParallel(network)
    without_ddp = core_of(network)
    optimizer = torch.optim.SGD(without_ddp.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank() if distributed else 0)
    for _ in range(3):
        loss = network(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(without_ddp.parameters(), 1.0)
        optimizer.step()
    return without_ddp.state_dict()


dist.init_process_group("gloo")
run(torch.nn.Linear(4, 1), dist.get_world_size() > 1)
dist.destroy_process_group()
