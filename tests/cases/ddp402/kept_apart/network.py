"""A small network in blocks."""

import torch


class Block(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.norm = torch.nn.BatchNorm1d(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.linear(x)))


class Network(torch.nn.Module):
    def __init__(self, size: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(size) for _ in range(blocks)])
        self.head = torch.nn.Linear(size, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)
