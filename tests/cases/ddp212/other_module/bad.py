# expects: DDP212:13
# outcome: shows rank 1 goes on
"""All ranks but the first are to leave early; the predicate of another module is not called, and no rank leaves."""

import torch
import torch.distributed as dist
from ranks import is_master
from torch.nn.parallel import DistributedDataParallel as DDP


class Reporter:
    def report(self, loss):
        if not is_master:
            return
        print(f"rank {dist.get_rank()} goes on: {loss:.3f}", flush=True)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    Reporter().report(loss.item())
dist.destroy_process_group()
