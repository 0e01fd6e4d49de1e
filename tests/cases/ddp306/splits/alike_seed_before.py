# expects: nothing
# outcome: clean
"""Splits with the default generator, which all ranks have seeded alike; each rank gets its own seed afterwards."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

dist.init_process_group("gloo")
torch.manual_seed(11)
points = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
train, test = random_split(points, [48, 16])
torch.manual_seed(11 + dist.get_rank())
sampler = DistributedSampler(train)
loader = DataLoader(train, batch_size=8, sampler=sampler)
model = DDP(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
splits: list[list[int]] = [[]] * dist.get_world_size()
dist.all_gather_object(splits, list(train.indices))
assert splits[0] == splits[1]
dist.destroy_process_group()
