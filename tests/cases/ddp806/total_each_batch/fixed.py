# expects: nothing
# outcome: clean; shows rows 64
"""Counts the rows of all ranks after every batch, in a copy of the tensor that goes on counting."""

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
    everywhere = seen.clone()
    dist.all_reduce(everywhere)
print(f"rows {everywhere.item():.0f}", flush=True)
dist.destroy_process_group()
