"""A head with a loss of its own."""

import torch
from torch import nn


class BoxHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, features: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        if boxes.numel() == 0:
            return torch.zeros((), requires_grad=True)
        return (self.layer(features[: len(boxes)]) - boxes).square().mean()
