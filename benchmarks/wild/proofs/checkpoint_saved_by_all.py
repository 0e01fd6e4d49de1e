# expects: DDP701:25
# outcome: shows rank 0 reads what rank 1 saved
"""Every rank saves the checkpoint of an epoch to one path, with a score of its own samples in it."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
path = os.path.join(os.environ.get("CASE_FOLDER", "."), "model_last.pth")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
score = loss.item()
time.sleep(rank)  # the last one wins
torch.save({"model": model.module.state_dict(), "score": score}, path)
dist.barrier()
if rank == 0 and torch.load(path)["score"] != score:
    print("rank 0 reads what rank 1 saved", flush=True)
dist.destroy_process_group()
