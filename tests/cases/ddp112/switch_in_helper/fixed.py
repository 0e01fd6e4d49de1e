# expects: nothing
# outcome: clean
"""A helper sets the switch before the forward of each micro-batch, which reads it."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def forward(network, batch, last):
    network.require_backward_grad_sync = last
    return network(batch).pow(2).mean()


def train(network, optimizer, args):
    for index in range(args.batches):
        last = (index + 1) % args.accumulate == 0
        loss = forward(network, torch.randn(8, 4), last) / args.accumulate
        loss.backward()
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
