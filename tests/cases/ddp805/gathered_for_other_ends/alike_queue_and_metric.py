# expects: nothing
# outcome: clean
"""A queue of a teacher's rows, and outputs that are gathered to be measured."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
teacher = torch.nn.Linear(4, 2, bias=False)
model = DDP(torch.nn.Linear(4, 2, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 4)[rank * 8 : rank * 8 + 8]
with torch.no_grad():
    keys = teacher(x)
queue = [torch.empty_like(keys) for _ in range(world_size)]
dist.all_gather(queue, keys)
rows = model(x)
loss = (rows @ torch.cat(queue).T).pow(2).mean()
loss.backward()
optimizer.step()
seen = [torch.empty_like(rows) for _ in range(world_size)]
dist.all_gather(seen, rows)
spread = torch.cat(seen).std().item()
dist.destroy_process_group()
