# expects: nothing
# outcome: clean
"""Conditions that come out alike on all ranks: an option, whether an input is given, a shape, the training mode."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self, auxiliary: bool) -> None:
        super().__init__()
        self.auxiliary = auxiliary
        self.stem = nn.Linear(4, 4)
        self.widen = nn.Linear(2, 4)
        self.side = nn.Linear(4, 1) if auxiliary else None
        self.prompt = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, narrow: torch.Tensor, prompt: torch.Tensor | None = None) -> torch.Tensor:
        x = self.stem(x)
        if narrow.shape[1] != x.shape[1]:
            narrow = self.widen(narrow)
        x = x + narrow
        if prompt is not None:
            x = x + self.prompt(prompt)
        loss = x.square().mean()
        if self.auxiliary and self.training:
            loss = loss + self.side(x).square().mean()
        return loss


dist.init_process_group("gloo")
model = DDP(Net(auxiliary=True))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
mine = [(torch.randn(4) + dist.get_rank(), torch.randn(2), torch.randn(4)) for _ in range(16)]
for x, narrow, prompt in torch.utils.data.DataLoader(mine, batch_size=4):
    optimizer.zero_grad()
    model(x, narrow, prompt).backward()
    optimizer.step()
dist.destroy_process_group()
