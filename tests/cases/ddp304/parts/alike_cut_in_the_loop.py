# expects: nothing
# outcome: clean
"""Every process reads the whole stream and trains on its rows of each batch."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Points(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(32):
            yield torch.tensor([number / 32])


dist.init_process_group("gloo")
mine = slice(dist.get_rank(), None, dist.get_world_size())
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(Points(), batch_size=8):
    x = batch[mine]
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
