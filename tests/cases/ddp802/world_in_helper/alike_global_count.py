# expects: nothing
# outcome: clean
"""The sum of each rank's losses over the count of all ranks, times the number of ranks: right, for DDP takes the mean."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 4), torch.arange(8) % 3
part = slice(dist.get_rank() * 4, dist.get_rank() * 4 + 4)
loss = torch.nn.functional.cross_entropy(model(x[part]), y[part], reduction="sum")
count = torch.tensor(float(len(y[part])))
dist.all_reduce(count)
(loss * dist.get_world_size() / count).backward()
optimizer.step()
dist.destroy_process_group()
