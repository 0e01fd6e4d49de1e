"""Folklore: a window that the epoch cuts short is lost. Its local gradients are averaged with the next window."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
data = TensorDataset(torch.randn(21, 3), torch.randn(21, 2))
sampler = DistributedSampler(data, shuffle=True)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(3, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % 2 == 0
        model.require_backward_grad_sync = last
        torch.nn.functional.mse_loss(model(x), y).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    seen = torch.tensor(len(loader))
    dist.all_reduce(seen)
dist.destroy_process_group()
