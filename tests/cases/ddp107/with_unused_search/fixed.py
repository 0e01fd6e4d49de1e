# expects: nothing
# outcome: clean
"""The same with use_reentrant=False."""

import torch
import torch.distributed as dist
import torch.utils.checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(x).relu()


class Net(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(Block(4) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x.square().mean()


dist.init_process_group("gloo")
options = {"find_unused_parameters": True}
model = DDP(Net(2), **options)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
