# expects: nothing
# outcome: clean
"""The ranks agree whether one of them would fail, and all skip the batch."""

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
    if rank == 1 and step == 1:
        x[0] = float("nan")
    bad = torch.zeros(1)
    try:
        if x.isnan().any():
            raise RuntimeError("CUDA out of memory")
    except RuntimeError:
        bad += 1
    dist.all_reduce(bad, op=dist.ReduceOp.MAX)
    if bad.item():
        continue
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
