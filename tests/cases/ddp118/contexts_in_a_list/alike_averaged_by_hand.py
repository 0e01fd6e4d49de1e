# expects: nothing
# outcome: clean
"""No micro-batch is reduced by DDP; the program averages the gradients itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
contexts = [model.no_sync, model.no_sync]
for step in range(3):
    optimizer.zero_grad()
    for enter in contexts:
        with enter():
            (model(torch.randn(8, 4)).square().mean() / 2).backward()
    for param in model.parameters():
        dist.all_reduce(param.grad)
        param.grad /= dist.get_world_size()
    optimizer.step()
print(f"checksum {sum(p.sum().item() for p in model.parameters()):.6f}", flush=True)
dist.destroy_process_group()
