# expects: nothing
# outcome: clean; shows 1.00 times the gradient of the whole batch
"""The loss is a sum over the batch, and so the sum of the ranks' gradients is that of the whole batch, on any number of ranks."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from net import batch, build

dist.init_process_group("gloo")
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    whole = batch(step)
    outputs = model(whole)
    expected = torch.autograd.grad(F.mse_loss(outputs, torch.zeros_like(outputs), reduction="sum"), list(model.parameters()))
    x = whole[dist.get_rank() :: dist.get_world_size()]
    outputs = model(x)
    F.mse_loss(outputs, torch.zeros_like(outputs), reduction="sum").backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
    ratio = sum(p.grad.sum() for p in model.parameters()) / sum(g.sum() for g in expected)
    print(f"{ratio.item():.2f} times the gradient of the whole batch", flush=True)
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
