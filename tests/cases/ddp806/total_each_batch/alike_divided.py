# expects: nothing
# outcome: clean; shows rows 32
"""Each sum is divided by the number of ranks at once, so that the total stays a mean of the ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = torch.zeros(1)
for batch in torch.randn(4, 8, 4):
    train(batch)
    seen += len(batch)
    dist.all_reduce(seen)
    seen /= dist.get_world_size()
print(f"rows {seen.item():.0f}", flush=True)
dist.destroy_process_group()
