# expects: nothing
# outcome: clean
"""Trains without DDP: a helper averages flattened gradients over the ranks."""

import torch
import torch.distributed as dist
from net import batch, build


def reduce_gradients(model: torch.nn.Module) -> None:
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([grad.flatten() for grad in grads])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= dist.get_world_size()
    for grad, part in zip(grads, flat.split([grad.numel() for grad in grads]), strict=True):
        grad.copy_(part.view_as(grad))


dist.init_process_group("gloo")
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x = batch(step)[dist.get_rank() :: dist.get_world_size()]
    optimizer.zero_grad()
    model(x).square().mean().backward()
    reduce_gradients(model)
    optimizer.step()
dist.destroy_process_group()
