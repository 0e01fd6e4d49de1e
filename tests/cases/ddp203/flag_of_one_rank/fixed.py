# expects: nothing
# outcome: clean
"""Every rank sets its flag in the same step."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Trainer:
    def __init__(self):
        self.stop = False
        self.model = DDP(torch.nn.Linear(4, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def watch(self, step):
        if step == 1:
            self.stop = True

    def fit(self):
        for step in range(5):
            self.optimizer.zero_grad()
            self.model(torch.randn(8, 4)).square().mean().backward()
            self.optimizer.step()
            self.watch(step)
            if self.stop:
                break


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
Trainer().fit()
dist.destroy_process_group()
