# expects: nothing
# outcome: clean; shows as they should be
"""Collectives by a dict, by a set of numbers, by a set that is sorted in place, and barriers by a set."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
stats = {name: torch.ones(1) for name in ("loss", "accuracy", "recall")}
for value in stats.values():
    dist.all_reduce(value)
names = list({"loss", "accuracy", "recall"})
names.sort()
for place, name in enumerate(names):
    stats[name] = torch.tensor([float(place)])
    dist.all_reduce(stats[name])
for size in {1, 2, 3}:
    dist.all_reduce(torch.ones(size))
for _ in {"loss", "accuracy", "recall"}:
    dist.barrier()
right = [stats[name].item() for name in names] == [0.0, 2.0, 4.0]
print("as they should be" if right else "mixed up", flush=True)
dist.destroy_process_group()
