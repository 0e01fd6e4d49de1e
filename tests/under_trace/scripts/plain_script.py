# ends: completes
"""A plain script: everything at module level, as in a first tutorial."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group(backend="gloo")
rank = int(os.environ["RANK"])
torch.manual_seed(42)

inputs = torch.randn(70, 6)
targets = inputs.sum(dim=1, keepdim=True)
dataset = TensorDataset(inputs, targets)
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)

net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
net = DistributedDataParallel(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
loss_fn = nn.MSELoss()

for epoch in range(2):
    sampler.set_epoch(epoch)
    running = 0.0
    for x, y in loader:
        opt.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()
        opt.step()
        running += loss.item()
    if rank == 0:
        print(f"epoch {epoch}: {running / len(loader):.4f}")

dist.destroy_process_group()
