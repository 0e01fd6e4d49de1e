# expects: nothing
# outcome: clean
"""The log is None on the other ranks, or not there, and every use asks for it first; one name is made on both sides."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from trainer import Log, Trainer


class Logging(Trainer):
    def before_train(self):
        self.log = Log() if self.rank == 0 else None
        if self.rank == 0:
            self.rows = Log()

    def after_step(self, step, loss):
        if self.log is not None:
            self.log.row(step=step)
        if self.log:
            self.log.row(loss=loss)
        if hasattr(self, "rows"):
            self.rows.row(step=step)
        rows = getattr(self, "rows", None)
        if rows is not None:
            rows.row(loss=loss)
        if not self.rank and self.rows.rows:
            self.rows.row(step=step)


dist.init_process_group("gloo")
rank = dist.get_rank()
if rank == 0:
    steps = 2
else:
    steps = 2
torch.manual_seed(rank)
Logging(DDP(torch.nn.Linear(4, 1)), steps).train()
dist.destroy_process_group()
