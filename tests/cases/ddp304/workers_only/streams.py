"""Streams of rows."""

from collections.abc import Iterator
from itertools import islice

import torch
from torch.utils.data import IterableDataset, get_worker_info


class Rows(IterableDataset):
    """All rows, or every n-th where several workers read them."""

    def __init__(self, size: int) -> None:
        self.size = size

    def rows(self) -> Iterator[torch.Tensor]:
        for number in range(self.size):
            yield torch.tensor([number / self.size])

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        if info is None:
            return self.rows()
        return islice(self.rows(), info.id, None, info.num_workers)


class Part(IterableDataset):
    """Every n-th element of a stream, for one of n processes."""

    def __init__(self, stream: IterableDataset, index: int, count: int) -> None:
        self.stream, self.index, self.count = stream, index, count

    def __iter__(self) -> Iterator[torch.Tensor]:
        return islice(self.stream, self.index, None, self.count)
