# expects: nothing
# outcome: clean
"""The ranks agree in each iteration whether the time is over."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Budget:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def is_left(self):
        left = torch.tensor(float(time.monotonic() < self.end))
        dist.all_reduce(left, op=dist.ReduceOp.MIN)
        return bool(left)


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
budget = Budget(0.3)
time.sleep(0.6 if rank == 0 else 0.0)  # rank 0 prepares something
while budget.is_left():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
print("done", flush=True)
dist.destroy_process_group()
