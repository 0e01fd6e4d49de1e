# expects: nothing
# outcome: clean
"""The name of a predicate holds its answer: a variable, a parameter and a property."""

import ranks
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Run:
    @property
    def is_main_process(self):
        return dist.get_rank() == 0


def report(loss, is_main):
    if is_main:
        print(f"{loss:.3f}", flush=True)


dist.init_process_group("gloo")
is_master = ranks.is_master()
run = Run()
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if is_master and step == 2:
        print("done", flush=True)
    if run.is_main_process:
        print("step", step, flush=True)
    report(loss.item(), is_master)
dist.destroy_process_group()
