# expects: nothing
# outcome: clean
"""Only the forward stands in no_sync(), which is where the switch is read; the closing micro-batch is outside of it."""

from contextlib import ExitStack

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
accumulation = 3
for step in range(3):
    for micro_step in range(accumulation):
        with ExitStack() as stack:
            if micro_step < accumulation - 1:
                stack.enter_context(model.no_sync())
            loss = model(torch.randn(8, 4)).pow(2).mean()
        (loss / accumulation).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
