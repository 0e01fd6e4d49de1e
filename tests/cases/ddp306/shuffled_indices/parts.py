"""Divides a data set into two parts."""

import random

from torch.utils.data import Dataset, Subset


class Parts:
    def __init__(self, share: float, generator: random.Random | None = None) -> None:
        self.share = share
        self.generator = generator

    def of(self, data: Dataset, size: int) -> tuple[Subset, Subset]:
        order = list(range(size))
        if self.generator is None:
            random.shuffle(order)
        else:
            self.generator.shuffle(order)
        cut = int(size * self.share)
        return Subset(data, order[:cut]), Subset(data, order[cut:])
