# expects: DDP118:21
# outcome: gradients-local; parameters-differ
"""A counter in an object decides which micro-batch is reduced: the first of each two."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Loop:
    def __init__(self, model, every):
        self.model, self.every, self.count = model, every, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def micro(self, x):
        self.count += 1
        self.model.require_backward_grad_sync = self.count % self.every == 1
        self.model(x).square().mean().backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()


dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
loop = Loop(DDP(torch.nn.Linear(4, 1)), 2)
for step in range(3):
    for _ in range(2):
        loop.micro(torch.randn(8, 4))
    loop.update()
dist.destroy_process_group()
