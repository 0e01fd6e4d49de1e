# expects: nothing
# outcome: clean
"""Averages gradients by hand: all reductions are started, then each is waited for, then the sums are divided."""

import torch
import torch.distributed as dist


def average(model):
    handles = []
    for parameter in model.parameters():
        handles.append(dist.all_reduce(parameter.grad, async_op=True))
    for handle in handles:
        handle.wait()
    for parameter in model.parameters():
        parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
torch.manual_seed(1 + dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    average(model)
    optimizer.step()
dist.destroy_process_group()
