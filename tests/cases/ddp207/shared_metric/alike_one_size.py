# expects: nothing
# outcome: clean; shows 4
"""Sizes that differ are exchanged and padded, objects may differ, and both arms bring one size and type."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def gather(rows, world_size):
    """The rows of all ranks."""
    count = torch.tensor([len(rows)])
    counts = [torch.zeros_like(count) for _ in range(world_size)]
    dist.all_gather(counts, count)
    longest = int(max(counts).item())
    padded = torch.zeros(longest, 4)
    padded[: len(rows)] = rows
    everywhere = [torch.zeros_like(padded) for _ in range(world_size)]
    dist.all_gather(everywhere, padded)
    return torch.cat([part[:n] for part, n in zip(everywhere, counts, strict=True)])


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
x = torch.ones(3 - 2 * rank, 4)
rows = x[x[:, 0] > 0]
print(len(gather(rows, world_size)), flush=True)
everyone = [None] * world_size
dist.all_gather_object(everyone, rows)
chosen = torch.ones(2) if rank == 0 else torch.empty(2)
dist.broadcast(chosen, 0)
total = rows.sum()
dist.all_reduce(total)
dist.destroy_process_group()
