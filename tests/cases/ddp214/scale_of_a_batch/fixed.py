# expects: nothing
# outcome: clean
"""The scale of rank 0 is meant for all ranks, and is sent into their own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def scale_of(rank):
    return torch.tensor([1.0 + rank])


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scale = scale_of(rank)
dist.broadcast(scale, src=0)
for step in range(3):
    optimizer.zero_grad()
    (model(torch.randn(8, 4)) * scale).pow(2).mean().backward()
    optimizer.step()
print(f"rank {rank} scales by {scale.item()}", flush=True)
dist.destroy_process_group()
