# expects: nothing
# outcome: clean
"""Work before the group is made, work behind a test for its result, and ranks that wait on a patient group of their own."""

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from prepare import download_corpus
from torch.nn.parallel import DistributedDataParallel as DDP

DONE = Path(os.environ["CASE_FOLDER"]) / "done"

if int(os.environ["RANK"]) == 0:
    download_corpus(0.1)
dist.init_process_group("gloo")
rank = dist.get_rank()
patient = dist.new_group(timeout=timedelta(hours=6))
if rank == 0 and not DONE.exists():
    download_corpus(0.1)
    DONE.touch()
dist.barrier()
if rank == 0:
    download_corpus(0.1)
dist.barrier(group=patient)
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
if rank == 0:
    download_corpus(0.1)
dist.destroy_process_group()
