# expects: DDP109:13
# outcome: hang 1; error 0: Expected to have finished reduction
"""A head returns a fresh zero where the batch has no boxes, which happens on rank 0 in the second step."""

import datetime

import torch
import torch.distributed as dist
from heads import BoxHead
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.score = nn.Linear(4, 1)
        self.box = BoxHead()

    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        features = self.body(x)
        return self.score(features).square().mean() + self.box(features, boxes)


def collate(items):
    return torch.stack([x for x, _ in items]), torch.cat([boxes for _, boxes in items])


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=5))
model = DDP(Detector())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
items = [(torch.randn(4), torch.randn(0 if dist.get_rank() == 0 and n >= 4 else 1, 2)) for n in range(16)]
for x, boxes in DataLoader(items, batch_size=4, collate_fn=collate):
    optimizer.zero_grad()
    model(x, boxes).backward()
    optimizer.step()
dist.destroy_process_group()
