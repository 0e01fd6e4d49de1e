# expects: DDP309:18
# outcome: same-samples
# launch: torchrun --standalone --nproc-per-node 4 bad.py
"""Draws windows from NumPy's generator with one seed on all ranks; rank 0 evaluates, so that ranks 1 to 3 alone stay in step."""

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
data = torch.linspace(0, 1, 500)
training = np.random.default_rng(7)


def get_batch():
    starts = training.integers(0, len(data) - 4, size=8)
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
