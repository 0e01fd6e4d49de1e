# expects: DDP204:25
# outcome: parameters-differ
"""A rank whose own loss is too large skips the step, which the others take."""

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
        if loss > 1e3:
            raise ValueError("the loss is too large")
        optimizer.step()
    except ValueError:
        print("skipped", flush=True)
dist.destroy_process_group()
