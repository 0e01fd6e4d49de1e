# expects: DDP204:23
# outcome: error 1: object has no attribute 'log'; hang 0
"""Only rank 0 makes the log, and the hook of another moment writes to it on all ranks."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from trainer import Log, Trainer


class Logging(Trainer):
    def before_train(self):
        if self.rank == 0:
            if self.steps > 1:
                self.log = Log()
            self.started = True

    def after_step(self, step, loss):
        if self.rank == 0 and self.started:
            print(step, flush=True)
        if self.steps > 1:
            self.log.row(step=step, loss=loss)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
Logging(DDP(torch.nn.Linear(4, 1)), 3).train()
dist.destroy_process_group()
