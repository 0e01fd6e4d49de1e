# expects: nothing
# outcome: clean
"""All parameters require a gradient at the wrap; the backbone's group has learning rate 0 until the epoch comes."""

import dataclasses

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclasses.dataclass
class Config:
    epochs: int = 3
    unfreeze_at: int = 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(4, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x).relu()).square().mean()


config = Config()
dist.init_process_group("gloo")
model = DDP(Net())
groups = [{"params": model.module.backbone.parameters(), "lr": 0.0}, {"params": model.module.head.parameters()}]
optimizer = torch.optim.SGD(groups, lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for epoch in range(config.epochs):
    if epoch == config.unfreeze_at:
        optimizer.param_groups[0]["lr"] = 0.1
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).backward()
        optimizer.step()
dist.destroy_process_group()
