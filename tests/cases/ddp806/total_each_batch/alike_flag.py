# expects: nothing
# outcome: clean; shows stopped after 3
"""A flag that some rank raises is summed in place after each batch, and all ranks leave together."""

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
stop = torch.zeros(1)
for step, batch in enumerate(torch.randn(8, 8, 4)):
    loss = train(batch)
    if dist.get_rank() == 1 and step == 2:
        stop += 1
    dist.all_reduce(stop)
    if stop.item() > 0:
        break
print(f"stopped after {step + 1}", flush=True)
dist.destroy_process_group()
