# expects: nothing
# outcome: clean
"""The head is left out by the content of the batch, and the wrapper looks for unused parameters."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.score = nn.Linear(4, 1)
        self.box = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(x)
        loss = self.score(features).square().mean()
        return loss + self.box(features).square().mean() if x.sum() > 0 else loss


dist.init_process_group("gloo")
model = DDP(Detector(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
