# expects: DDP301:13
# outcome: same-samples
"""The loader has no sampler, so each rank goes through the whole set; the loop tells a sampler of epochs where there is one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loader():
    data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
    return DataLoader(data, batch_size=4, shuffle=True)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
loader = make_loader()
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    if isinstance(loader.sampler, DistributedSampler):
        loader.sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
dist.destroy_process_group()
