# expects: DDP302:19
# outcome: same-order
"""A generator starts the loader again without end, and nothing tells the sampler of a new epoch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def batches(loader):
    while True:
        yield from loader


dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4))
loader = batches(DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=True), drop_last=True))
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    (x,) = next(loader)
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
