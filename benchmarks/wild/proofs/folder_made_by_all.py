# expects: DDP701:16
# outcome: error 1: File exists
"""Every rank looks for the folder of checkpoints, and makes it without exist_ok."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def ensure_folder(path):
    if not os.path.exists(path):
        time.sleep(dist.get_rank())  # the time between the question and the deed, longer on one rank
        os.makedirs(path)


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ensure_folder(os.path.join(os.environ.get("CASE_FOLDER", "."), "saved"))
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
