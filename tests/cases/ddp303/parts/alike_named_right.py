# expects: nothing
# outcome: clean
# launch: torchrun --nnodes 2 --nproc-per-node 1 alike_named_right.py
"""Names the global numbers, computed from those of the node, and one seed; the device is the local one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
node, nodes = int(os.environ["GROUP_RANK"]), int(os.environ["WORLD_SIZE"]) // int(os.environ["LOCAL_WORLD_SIZE"])

dist.init_process_group("gloo")
data = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
sampler = DistributedSampler(data, num_replicas=nodes * local_size, rank=node * local_size + local_rank, seed=5)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
