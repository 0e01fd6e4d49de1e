# expects: nothing
# outcome: clean
"""One process of each node puts the data on the disk of its node; whether nodes share that disk the code does not say."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
folder = os.environ["CASE_FOLDER"]
if int(os.environ["LOCAL_RANK"]) == 0:
    torch.save(torch.ones(2, 4), os.path.join(folder, "data.pt"))
dist.barrier()
x = torch.load(os.path.join(folder, "data.pt"), weights_only=True)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(x).sum().backward()
optimizer.step()
dist.destroy_process_group()
