# expects: DDP208:20
# outcome: shows rank 0 has 0.0, 0.0
"""Reads gathered scores in a method that does not wait for them."""

import time

import torch
import torch.distributed as dist
from scores import Scores
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
if rank == 1:
    time.sleep(0.5)
scores = Scores()
scores.start(torch.ones(1))
print(f"rank {rank} has", ", ".join(str(score.item()) for score in scores.early()), flush=True)
scores.result()
dist.destroy_process_group()
