# expects: nothing
# outcome: clean
"""Layers that the forward reaches by computed names, through a dict, and tied weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer0 = nn.Linear(4, 4)
        self.layer1 = nn.Linear(4, 4)
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.Linear(4, 2)})
        self.embed = nn.Embedding(3, 4)
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for number in range(2):
            x = getattr(self, f"layer{number}")(x).relu()
        out = sum(head(x).sum() for head in self.heads.values())
        return out * self.scale + F.linear(x, self.embed.weight).square().mean()


dist.init_process_group("gloo")
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randint(3, (8,))).backward()
    optimizer.step()
dist.destroy_process_group()
