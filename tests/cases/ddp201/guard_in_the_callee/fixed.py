# expects: nothing
# outcome: clean
"""All ranks average, and a decorator lets rank 0 alone into the function that prints."""

import functools

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def rank_zero_only(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)
        return None

    return inner


def mean_over_ranks(value):
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


@rank_zero_only
def log(step, loss):
    print(step, loss.item())


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for step in range(3):
        loss = model(torch.randn(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log(step, mean_over_ranks(loss.detach()))
    dist.destroy_process_group()


main()
