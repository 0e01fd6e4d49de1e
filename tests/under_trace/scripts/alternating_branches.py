# ends: completes
"""Two branches used in turn with find_unused_parameters, and activation checkpointing in one."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.branches = nn.ModuleDict(
            {"left": nn.Linear(4, 2), "right": nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))}
        )

    def forward(self, x, side):
        x = self.stem(x)
        if side == "right" and self.training:
            return checkpoint(self.branches[side], x, use_reentrant=False)
        return self.branches[side](x)


def main():
    dist.init_process_group("gloo")
    model = DDP(Branches(), find_unused_parameters=True)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    sides = ("left", "right")
    for step in range(5):
        optimizer.zero_grad()
        model(torch.randn(2, 4), sides[step % 2]).abs().sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
