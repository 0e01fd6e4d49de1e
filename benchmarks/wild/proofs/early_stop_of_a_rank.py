# expects: nothing
# outcome: hang 0
"""Each rank leaves the passes over its samples by its own divergence, and averages gradients by hand in each pass."""

import torch
import torch.distributed as dist

TARGET = 0.5

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
samples = torch.randn(8, 4) * (1 + 9 * rank)
for iteration in range(2):
    for epoch in range(4):
        optimizer.zero_grad()
        divergence = policy(samples).pow(2).mean()
        divergence.backward()
        gradients = torch.cat([p.grad.flatten() for p in policy.parameters()])
        dist.all_reduce(gradients)
        offset = 0
        for p in policy.parameters():
            p.grad.copy_(gradients[offset : offset + p.numel()].view_as(p) / dist.get_world_size())
            offset += p.numel()
        optimizer.step()
        if divergence > TARGET:
            break
dist.destroy_process_group()
