"""A sampler that gives each process one contiguous block of the records, in a new order each epoch."""

import math
import random

from torch.utils.data import Sampler


class BlockSampler(Sampler):
    """The records of one process.

    The last block is cut where the records end.
    """

    def __init__(self, count, rank, world_size, seed=0):
        self.count = count
        self.rank = rank
        self.seed = seed
        self.epoch = 0
        self.per_rank = math.ceil(count / world_size)
        self.indices = self._block()

    def _block(self):
        start = self.rank * self.per_rank
        stop = start + self.per_rank
        stop = min(stop, self.count)
        return list(range(start, stop))

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = list(self.indices)
        random.Random(self.seed + self.epoch).shuffle(order)
        return iter(order)

    def __len__(self):
        return len(self.indices)
