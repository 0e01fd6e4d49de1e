# expects: nothing
# outcome: clean
"""The inner module evaluates, is averaged into a shadow copy and saved; the loss itself comes from the wrapper."""

import copy
import os

import torch
import torch.distributed as dist
from tools import core_of
from torch.nn.parallel import DistributedDataParallel


def update(shadow, network, decay=0.9):
    with torch.no_grad():
        for mean, new in zip(shadow.parameters(), core_of(network).parameters()):
            mean.mul_(decay).add_(new, alpha=1 - decay)


@torch.no_grad()
def evaluate(network, data):
    core = core_of(network)
    core.eval()
    loss = core(data).pow(2).mean()
    core.train()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    network = DistributedDataParallel(torch.nn.Linear(4, 1))
    shadow = copy.deepcopy(network.module)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(4):
        network(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        update(shadow, network)
    if dist.get_rank() == 0:
        evaluate(network, torch.randn(8, 4))
        torch.save(core_of(network).state_dict(), os.path.join(os.environ["CASE_FOLDER"], "net.pt"))
    dist.destroy_process_group()


main()
