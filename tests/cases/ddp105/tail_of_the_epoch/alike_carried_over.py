# expects: nothing
# outcome: clean
"""The last batches of an epoch fill no window; their local gradients wait, and the next synchronised backward averages them, too."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
window = 2
for epoch in range(2):
    for index in range(5):
        x = torch.randn(8, 4)
        if (index + 1) % window:
            with model.no_sync():
                (model(x).pow(2).mean() / window).backward()
        else:
            (model(x).pow(2).mean() / window).backward()
            optimizer.step()
            optimizer.zero_grad()
dist.destroy_process_group()
