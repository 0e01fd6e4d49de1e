# expects: nothing
# outcome: clean
"""Each stage receives from the one before it and sends to the one after it; the first receives nothing, the last sends nothing."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    before = torch.zeros_like(total)
    if rank != 0:
        dist.recv(before, rank - 1)
    total += before
    if rank != world_size - 1:
        dist.send(total, rank + 1)
    print(total.item(), flush=True)
dist.destroy_process_group()
