"""A bank of recent features that negatives are taken from."""

import torch


class Bank(torch.nn.Module):
    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("features", torch.zeros(size, width))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))

    def forward(self, new: torch.Tensor) -> torch.Tensor:
        negatives = self.features.clone()
        self._put(new.detach())
        return negatives

    def _put(self, rows: torch.Tensor) -> None:
        start = int(self.position)
        self.features[start : start + len(rows)] = rows
        self.position[0] = (start + len(rows)) % len(self.features)
