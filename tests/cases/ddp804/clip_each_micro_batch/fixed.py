# expects: nothing
# outcome: clean
"""A trainer clips once for a window of two micro-batches."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

WINDOW = 2


class Trainer:
    def __init__(self, net):
        self.model = DDP(net)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def micro_step(self, i, x):
        loss = self.model(x).mean() / WINDOW
        loss.backward()
        if (i + 1) % WINDOW == 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(0)
trainer = Trainer(torch.nn.Linear(1, 1, bias=False))
for i, value in enumerate([6.0, -1.0]):
    trainer.micro_step(i, torch.full((2, 1), value))
dist.destroy_process_group()
