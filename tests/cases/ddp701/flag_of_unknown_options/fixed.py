# expects: nothing
# outcome: clean
"""The options say that rank 0 saves."""

import os

import settings
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def finish(model, given):
    if given.saves:
        torch.save(model.state_dict(), os.path.join(os.environ["CASE_FOLDER"], "last.pt"))
        print("saved by", dist.get_rank(), flush=True)


options = settings.read()
dist.init_process_group("gloo")
options.saves = options.folder and options.folder.lower() != "none" and dist.get_rank() == 0
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
finish(model, options)
dist.barrier()
dist.destroy_process_group()
