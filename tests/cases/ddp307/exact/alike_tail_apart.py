# expects: nothing
# outcome: clean; shows evaluated 9 of 9
"""The sampler drops what does not divide, and every rank evaluates the few rows that are left by itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

dist.init_process_group("gloo")
rows = TensorDataset(torch.arange(9.0).reshape(9, 1))
sampler = DistributedSampler(rows, shuffle=False, drop_last=True)
loader = DataLoader(rows, batch_size=2, sampler=sampler)
model = DDP(torch.nn.Linear(1, 1))
sums = torch.zeros(2)
with torch.no_grad():
    for (x,) in loader:
        sums += torch.stack([model(x).sum(), torch.tensor(float(len(x)))])
dist.all_reduce(sums)
covered = len(sampler) * dist.get_world_size()
with torch.no_grad():
    for (x,) in DataLoader(Subset(rows, range(covered, len(rows)))):
        sums += torch.stack([model(x).sum(), torch.tensor(float(len(x)))])
print(f"evaluated {int(sums[1])} of {len(rows)}")
dist.destroy_process_group()
