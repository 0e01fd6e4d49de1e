# expects: nothing
# outcome: clean
"""The losses come from a generator: each forward runs right before its backward."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + dist.get_rank())
for _ in range(3):
    batch = torch.randn(8, 4)
    optimizer.zero_grad()
    for view in (batch, batch.flip(0)):
        loss = model(view).square().mean()
        loss.backward()
    optimizer.step()
dist.destroy_process_group()
