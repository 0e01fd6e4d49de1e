# expects: nothing
# outcome: clean
"""Fine-tunes for other classes; the head is replaced before the wrap."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Classifier(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def unwrap(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DDP) else model


def set_classes(model: nn.Module, classes: int) -> None:
    core = unwrap(model)
    core.head = nn.Linear(8, classes)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Classifier(10)
set_classes(net, 3)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
