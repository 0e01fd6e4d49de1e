# expects: DDP702:25
# outcome: error 1: No such file or directory
"""Each rank names the checkpoint by its own clock, rank 0 writes its own, and all ranks load theirs."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
time.sleep(1.1 * rank)
path = os.path.join(os.environ.get("CASE_FOLDER", "."), f"net-{time.strftime('%H-%M-%S')}.pth")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
if rank == 0:
    torch.save(model.module.state_dict(), path)
dist.barrier()
model.module.load_state_dict(torch.load(path))
dist.destroy_process_group()
