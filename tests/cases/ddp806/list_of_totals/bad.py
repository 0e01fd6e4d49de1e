# expects: DDP806:32
# outcome: shows 240 rows
"""A function that gives the mean of two totals reduces them in place, after each batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def add_up(totals):
    for total in totals:
        dist.all_reduce(total.detach(), op=dist.ReduceOp.SUM)
    return totals[0] / totals[1]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_sum, rows = torch.zeros(1), torch.zeros(1)
for batch in torch.randn(4, 8, 4):
    loss_sum.add_(train(batch) * len(batch))
    rows.add_(len(batch))
    mean = add_up([loss_sum, rows])
print(f"{mean.item():.3f} over {rows.item():.0f} rows", flush=True)
dist.destroy_process_group()
