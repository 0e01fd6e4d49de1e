# expects: nothing
# outcome: clean
"""What rank 0 does after a step sends nothing."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
after = {"wait": lambda: print("saved", flush=True), "go on": lambda: None}
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    after["wait" if rank == 0 else "go on"]()
dist.destroy_process_group()
