# expects: nothing
# outcome: clean
"""A head is never used, and the wrapper is told to look for such."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 1)
        self.spare = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean()


dist.init_process_group("gloo")
model = DDP(Net(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
