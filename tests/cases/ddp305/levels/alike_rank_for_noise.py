# expects: nothing
# outcome: clean
"""A data set takes the rank as part of a seed and is whole on each; a sampler divides it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noisy(Dataset):
    def __init__(self, size: int, rank: int) -> None:
        self.size = size
        self.generator = torch.Generator().manual_seed(10 + rank)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index / self.size]) + 0.01 * torch.randn(1, generator=self.generator)


dist.init_process_group("gloo")
data = Noisy(32, dist.get_rank())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
