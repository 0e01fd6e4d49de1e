# expects: nothing
# outcome: clean; shows largest 3
"""The running number is a maximum, which may be reduced as often as one likes."""

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
largest = torch.zeros(1)
for step, batch in enumerate(torch.randn(4, 8, 4)):
    train(batch)
    largest = torch.maximum(largest, torch.tensor([float(step)]))
    largest += 0
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
print(f"largest {largest.item():.0f}", flush=True)
dist.destroy_process_group()
