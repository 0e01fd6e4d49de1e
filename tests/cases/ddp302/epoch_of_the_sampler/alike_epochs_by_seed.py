# expects: nothing
# outcome: clean
"""An endless iterator over the loader is taken batch by batch; it sets the epoch itself whenever it begins anew."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def forever(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


dist.init_process_group("gloo")
torch.manual_seed(0)
rows = torch.randn(32, 4)
sampler = DistributedSampler(rows)
batches = forever(DataLoader(rows, batch_size=4, sampler=sampler), sampler)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    optimizer.zero_grad()
    model(next(batches)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
