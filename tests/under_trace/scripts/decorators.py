# ends: completes
"""Decorators: only on the main process, retry, and one with arguments that runs a function on every rank in turn."""

import functools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def rank_zero_only(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)
        return None

    return wrapper


def in_turn(after=True):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            result = None
            for rank in range(dist.get_world_size()):
                if rank == dist.get_rank():
                    result = function(*args, **kwargs)
                dist.barrier()
            return result if after else None

        return wrapper

    return decorate


@rank_zero_only
def log(message, *, level="info"):
    print(level, message)


@in_turn(after=True)
def read(n):
    return torch.arange(float(n)).reshape(-1, 2)


@torch.no_grad()
def evaluate(model, data):
    loss = model(data).mean()
    dist.all_reduce(loss)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    data = read(12)
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for x in data.split(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    log(f"loss {evaluate(model, data):.2f}", level="result")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
