# expects: DDP204:18
# outcome: hang 0
"""A rank whose batch does not fit into memory goes to its next batch, without the backward in which the others wait."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sizes = [8, 8, 2**60 if rank == 1 else 8, 8]  # of the samples of each batch; one is too large
for size in sizes:
    try:
        loss = model(torch.ones(size, 4)).pow(2).mean()
    except RuntimeError as error:
        if not any(words in str(error) for words in ("memory", "allocate", "overflow")):
            raise
        print("ran out of memory, passing batch", flush=True)
        optimizer.zero_grad()
        continue
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
