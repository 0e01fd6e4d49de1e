# expects: nothing
# outcome: clean
"""The root alone brings a list to gather."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def collect(value, root=0):
    """The values of all ranks, on the root."""
    values = [torch.zeros_like(value) for _ in range(dist.get_world_size())]
    dist.gather(value, gather_list=values if dist.get_rank() == root else None, dst=root)
    return values


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
print(collect(loss.detach()), flush=True)
dist.destroy_process_group()
