# expects: nothing
# outcome: clean
"""Reads the anchors of a detector from whatever the model is by then; helpers compare its type with the wrappers' first."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WRAPPERS = (nn.DataParallel, DistributedDataParallel)


class Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 2)])
        self.anchors = 3
        self.head = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def is_parallel(model: nn.Module) -> bool:
    return type(model) in (nn.parallel.DataParallel, nn.parallel.DistributedDataParallel)


def is_plain(model: nn.Module) -> bool:
    if model.__class__ in WRAPPERS:
        return False
    return type(model) is not DistributedDataParallel


def main() -> None:
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if distributed:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model: nn.Module = Detector()
    if distributed:
        model = DistributedDataParallel(model)
    head = model.module.layers[model.module.head] if is_parallel(model) else model.layers[model.head]
    anchors = model.anchors if is_plain(model) else model.module.anchors
    named = type(model).__name__ == "DistributedDataParallel"
    again = model.module.anchors if named else model.anchors
    if DistributedDataParallel is type(model):
        width = model.module.head
    else:
        width = model.head
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).pow(2).mean() * head.out_features
        loss.backward()
        optimizer.step()
    print(anchors, again, width)
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
