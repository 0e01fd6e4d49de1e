# expects: nothing
# outcome: clean; shows rows 64
"""What each batch has on all ranks is added up; the result is never reduced itself."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def over_ranks(value):
    tensor = torch.tensor(float(value))
    dist.all_reduce(tensor)
    return tensor.item()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = 0.0
for batch in torch.randn(4, 8, 4):
    train(batch)
    rows += over_ranks(len(batch))
print(f"rows {rows:.0f}", flush=True)
dist.destroy_process_group()
