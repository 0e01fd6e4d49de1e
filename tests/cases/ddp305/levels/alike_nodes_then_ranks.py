# expects: nothing
# outcome: clean; shows points that some rank trained on: 64 of 64
"""Each node takes its part of the files, and a sampler divides that among the node's own ranks."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

LOCAL_RANK, LOCAL_WORLD_SIZE = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
NODE, NODES = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])

dist.init_process_group("gloo")
points = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
of_node = Subset(points, range(NODE, 64, NODES))
sampler = DistributedSampler(of_node, num_replicas=LOCAL_WORLD_SIZE, rank=LOCAL_RANK)
loader = DataLoader(of_node, batch_size=4, sampler=sampler)
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen: set[int] = set()
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        seen |= set(x.flatten().mul(64).int().tolist())
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
everywhere: list[set[int]] = [set()] * dist.get_world_size()
dist.all_gather_object(everywhere, seen)
print(f"points that some rank trained on: {len(set().union(*everywhere))} of 64")
dist.destroy_process_group()
