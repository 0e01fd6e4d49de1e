# expects: nothing
# outcome: clean
"""The norm of the averaged gradients fails on all ranks or on none."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randn(8, 4)
    if rank == 1 and step == 2:
        x[0] = 1e3
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    try:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
    except RuntimeError:
        print("skipped", flush=True)
dist.destroy_process_group()
