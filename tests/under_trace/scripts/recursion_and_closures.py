# ends: completes
"""Binary search over batch sizes by recursion, closures that count, nested functions that communicate."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_counter():
    count = 0

    def increment(by=1):
        nonlocal count
        count += by
        return count

    return increment


def agree(flag):
    vote = torch.tensor(int(flag))
    dist.all_reduce(vote, op=dist.ReduceOp.MIN)
    return bool(vote.item())


def largest(low, high, fits):
    if high - low <= 1:
        return low
    middle = (low + high) // 2
    if agree(fits(middle)):
        return largest(middle, high, fits)
    return largest(low, middle, fits)


def main():
    dist.init_process_group("gloo")
    limit = 11 - dist.get_rank()
    tries = make_counter()

    def fits(size):
        tries()
        return size <= limit

    size = largest(1, 32, fits)
    assert size == 10, size
    model = DDP(nn.Linear(2, 2))
    for _ in range(tries() - 1):
        model(torch.randn(size, 2)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
