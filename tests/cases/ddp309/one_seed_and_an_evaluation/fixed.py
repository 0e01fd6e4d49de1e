# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 4 fixed.py
"""Draws windows after a seed of each rank's own; rank 0 also draws some to evaluate."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
data = torch.linspace(0, 1, 500)
training = torch.Generator().manual_seed(7 + rank)


def get_batch():
    starts = torch.randint(len(data) - 4, (8,), generator=training)
    windows = torch.stack([data[i : i + 5] for i in starts])
    return windows[:, :4], windows[:, 4:]


net = torch.nn.Linear(4, 1)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    if step % 2 == 0 and rank == 0:
        with torch.no_grad():
            x, y = get_batch()
            print(f"loss {(net(x) - y).pow(2).mean():.4f}")
    x, y = get_batch()
    (model(x) - y).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
