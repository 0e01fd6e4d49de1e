# expects: nothing
# outcome: clean
"""The contexts of two micro-batches stand in a list, and the last one reduces."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
contexts = [model.no_sync, nullcontext]
for step in range(3):
    optimizer.zero_grad()
    for enter in contexts:
        with enter():
            (model(torch.randn(8, 4)).square().mean() / 2).backward()
    optimizer.step()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
