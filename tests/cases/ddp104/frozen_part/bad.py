# expects: DDP104:24
# outcome: error all: Expected to have finished reduction
"""Freezes all but the head by name once training has begun, without find_unused_parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).relu()).square().mean()


def freeze_body(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if "head" not in name:
            parameter.requires_grad_(False)


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for step in range(4):
    if step == 1:
        freeze_body(model)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
