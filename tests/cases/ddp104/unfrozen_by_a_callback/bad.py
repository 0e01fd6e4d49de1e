# expects: DDP104:40
# outcome: gradients-local; parameters-differ
"""A callback unfreezes the backbone of the wrapped model at an epoch that the options name."""

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
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x).relu()).square().mean()


class Unfreeze:
    def __init__(self, config: Config) -> None:
        self.at = config.unfreeze_at

    def on_epoch(self, model: nn.Module, epoch: int) -> None:
        if epoch != self.at:
            return
        core = model.module if hasattr(model, "module") else model
        for _, parameter in core.backbone.named_parameters():
            parameter.requires_grad = True


config = Config()
dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
callback = Unfreeze(config)
torch.manual_seed(1 + dist.get_rank())
for epoch in range(config.epochs):
    callback.on_epoch(model, epoch)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).backward()
        optimizer.step()
dist.destroy_process_group()
