# expects: nothing
# outcome: clean
"""One rank's loss overflows: the mean of the gradients does so on all ranks, and all scalers halve alike and skip the step."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
for step in range(3):
    x = torch.randn(8, 4)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() * (float("inf") if rank == 1 and step == 1 else 1.0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
assert scaler.get_scale() == 4.0
dist.destroy_process_group()
