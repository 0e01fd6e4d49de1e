# expects: nothing
# outcome: clean
"""The keeper exists on all ranks, so its barrier is met; the rank is asked inside, around the writing alone."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Keeper:
    def __init__(self, folder, main):
        self.folder, self.main = folder, main

    def keep(self, model, step):
        if self.main:
            torch.save(model.state_dict(), os.path.join(self.folder, f"{step}.pt"))
        dist.barrier()


dist.init_process_group("gloo")
keeper = Keeper(os.environ["CASE_FOLDER"], main=dist.get_rank() == 0)
model = DDP(torch.nn.Linear(4, 1))
if keeper:
    keeper.keep(model.module, 0)
dist.destroy_process_group()
