# expects: nothing
# outcome: clean
"""Looks at the shape of a buffer in flight, takes a view of it, reads what is only sent; and an operation that may be a plain one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
overlap = bool(os.environ.get("OVERLAP"))
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
score = torch.ones(4)
out = torch.zeros(4 * world_size)
work = dist.all_gather_into_tensor(out, score, async_op=True)
parts = out.chunk(world_size)
print(out.shape, out.numel(), (score + 1).sum().item(), flush=True)
work.wait()
print(sum(part.sum().item() for part in parts), flush=True)
total = torch.ones(1)
work = dist.all_reduce(total, async_op=overlap)
if overlap:
    work.wait()
print(total.item() / world_size, flush=True)
dist.destroy_process_group()
