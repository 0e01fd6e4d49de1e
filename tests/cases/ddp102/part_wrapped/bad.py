# expects: DDP102:16
# outcome: gradients-local; parameters-differ
"""A model wraps its own backbone in its constructor; temperature and projection stay outside."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Matcher(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))
        self.projection = nn.Linear(4, 2)
        self.backbone = DistributedDataParallel(nn.Linear(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.projection(self.backbone(x)) * self.temperature).square().mean()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Matcher()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
