"""What the ranks are fed with."""

import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Feed:
    def __init__(self, data: Dataset, divided: bool = True) -> None:
        sampler = DistributedSampler(data, shuffle=False) if divided else None
        self.loader = DataLoader(data, batch_size=4, sampler=sampler)
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
