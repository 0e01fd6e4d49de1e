# expects: nothing
# outcome: clean
"""Switches the model to double precision before the wrap."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def prepare(model: torch.nn.Module, args: argparse.Namespace) -> torch.nn.Module:
    if args.double:
        model = model.double()
    return model.train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--double", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DDP(prepare(torch.nn.Linear(4, 1), args))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4, dtype=torch.float64)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
