# expects: nothing
# outcome: clean
# devices: 2
"""The place is given by a wrapper, as a function, or as the rank's device; data that a rank reads for itself is no checkpoint."""

import functools
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
load = functools.partial(torch.load, map_location="cpu", weights_only=True)
path = os.path.join(os.environ["CASE_FOLDER"], "last.pt")
model = DDP(torch.nn.Linear(4, 1).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if dist.get_rank() == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    torch.save(torch.ones(2, 4), path + ".data")
dist.barrier()
model.module.load_state_dict(load(path)["model"])
optimizer.load_state_dict(torch.load(path, map_location=f"cuda:{local_rank}", weights_only=True)["optimizer"])
model.module.load_state_dict(torch.load(path, lambda storage, place: storage, weights_only=True)["model"])
x = torch.load(path + ".data", weights_only=True)
model(x).sum().backward()
optimizer.step()
dist.destroy_process_group()
