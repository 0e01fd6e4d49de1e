# expects: DDP112:13
# outcome: gradients-local; parameters-differ
"""A helper sets the switch just before the backward of each micro-batch: the forward has read the value of the one before."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def backward(network, loss, last):
    network.require_backward_grad_sync = last
    loss.backward()


def train(network, optimizer, args):
    for index in range(args.batches):
        last = (index + 1) % args.accumulate == 0
        loss = network(torch.randn(8, 4)).pow(2).mean() / args.accumulate
        backward(network, loss, last)
        if last:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--batches", type=int, default=8)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    network = DistributedDataParallel(torch.nn.Linear(4, 1))
    torch.manual_seed(dist.get_rank())
    train(network, torch.optim.SGD(network.parameters(), lr=0.1), args)
    dist.destroy_process_group()
