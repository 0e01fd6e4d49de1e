# expects: nothing
# outcome: clean
"""Members meet by the list itself, so the others need not call."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    writers = dist.new_group([0], use_local_synchronization=True)
    dist.barrier(group=writers)
metrics = dist.new_group()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total, group=metrics)
dist.destroy_process_group()
