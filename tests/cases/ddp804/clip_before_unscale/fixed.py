# expects: nothing
# outcome: clean
"""Clips behind unscale_, where the gradient of 0.5 is within the limit."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def update(model, optimizer, scaler, loss, limit):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if limit:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    scaler.step(optimizer)
    scaler.update()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
update(model, optimizer, scaler, model(torch.full((2, 1), 0.5)).mean(), 1.0)
dist.destroy_process_group()
