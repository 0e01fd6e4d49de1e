# expects: nothing
# outcome: clean
"""One seed on all ranks, and noise from a generator that each rank seeds for itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(7)
model = DDP(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
noise_source = torch.Generator().manual_seed(7 + dist.get_rank())
for _ in range(4):
    noise = torch.randn(8, 4, generator=noise_source)
    optimizer.zero_grad()
    (model(noise) - noise).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
