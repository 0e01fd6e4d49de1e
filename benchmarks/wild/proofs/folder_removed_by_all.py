# expects: DDP701:21
# outcome: error 1: No such file or directory
"""Every rank that finds no history removes the folder of the run before."""

import os
import shutil
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = os.path.join(os.environ.get("CASE_FOLDER", "."), "before")
if rank == 0:
    os.makedirs(folder, exist_ok=True)
dist.barrier()
if not os.path.isfile(os.path.join(folder, "history.json")):
    time.sleep(0.3 * rank)  # no two ranks are equally fast
    shutil.rmtree(folder)
model = DDP(torch.nn.Linear(4, 1))
model(torch.randn(8, 4)).mean().backward()
dist.destroy_process_group()
