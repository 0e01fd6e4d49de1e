# expects: nothing
# outcome: clean
"""A dropped layer is computed and counts for nothing."""

import datetime
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, drop: float) -> None:
        super().__init__()
        self.drop = drop
        self.stem = nn.Linear(4, 4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layer in self.layers:
            kept = not (self.training and random.random() < self.drop)
            x = x + float(kept) * layer(x)
        return x.square().mean()


def main(seed: int = 0) -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
    random.seed(seed + dist.get_rank())
    model = DDP(Net(drop=0.3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
