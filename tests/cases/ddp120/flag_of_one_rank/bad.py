# expects: DDP120:18
# outcome: hang 1; gradients-local
"""Rank 1 switches the reduction of the first micro-batch on again, as somebody did to look at its gradients."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    for micro_step in range(2):
        x = torch.randn(8, 4)
        model.require_backward_grad_sync = micro_step == 1
        if dist.get_rank() == 1:
            model.require_backward_grad_sync = True
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
