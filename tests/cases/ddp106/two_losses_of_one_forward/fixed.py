# expects: nothing
# outcome: clean
"""A main and an auxiliary loss of one forward, added for one backward."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        x = torch.randn(8, 4)
        out = model(x)
        main = (out[:, 0] - x.sum(1)).square().mean()
        auxiliary = 0.5 * out[:, 1].square().mean()
        optimizer.zero_grad()
        (main + auxiliary).backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 2))
    torch.manual_seed(1 + dist.get_rank())
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), args.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
