# expects: DDP803:12
# outcome: gradients-local; parameters-differ
"""Each rank starts with a scale of its own."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Amp:
    def __init__(self, base):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=base * (1 + dist.get_rank()))

    def step(self, loss, optimizer):
        optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
amp = Amp(2.0)
for _ in range(2):
    x = torch.randn(8, 4)
    amp.step((model(x) - x.sum(1, keepdim=True)).pow(2).mean(), optimizer)
dist.destroy_process_group()
