# expects: nothing
# outcome: clean
"""A predicate that the caller may leave out is tested for being there, and then called."""

import torch
import torch.distributed as dist
from ranks import is_master
from torch.nn.parallel import DistributedDataParallel as DDP


def report(loss, predicate=None):
    if predicate is not None and not predicate():
        return
    if predicate and predicate():
        print(f"{loss:.3f}", flush=True)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss.item(), is_master)
dist.destroy_process_group()
