# expects: DDP105:21
# outcome: gradients-local; parameters-differ
"""Accumulates four micro-batches; the flag is set after each backward for the micro-batch that is over."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
window = 4
for step in range(4):
    for micro_step in range(window):
        x = torch.randn(8, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / window
        loss.backward()
        model.require_backward_grad_sync = micro_step == window - 1
        model.module(x).sum()  # a forward of the bare module reads no flag
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
