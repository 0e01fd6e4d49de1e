# expects: nothing
# outcome: clean
"""A loop of rank 0 alone, which no collective is in, is left by clock and by data; then all ranks meet."""

import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
if dist.get_rank() == 0:
    started = time.monotonic()
    for _ in range(1000):
        if torch.rand(1).item() > 0.9 or time.monotonic() - started > 0.2:
            break
found = 0
for value in torch.randn(20).tolist():
    if value < 0:
        continue
    found += 1
total = torch.tensor([found])
dist.all_reduce(total)
print(total.item())
dist.destroy_process_group()
