# expects: nothing
# outcome: clean
"""An endless stream of random points, each process with a seed of its own."""

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class Points(IterableDataset):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.rand(1)


dist.init_process_group("gloo")
torch.manual_seed(100 + dist.get_rank())
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, x in enumerate(DataLoader(Points(), batch_size=4)):
    if step == 4:
        break
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
