# expects: nothing
# outcome: clean
"""Rank 0 names the folder of the run and sends the name; the others take it from the list."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Run:
    def __init__(self, root):
        self.name = f"run-{len(os.listdir(root))}" if dist.get_rank() == 0 else None

    def share(self):
        box = [self.name]
        dist.broadcast_object_list(box, src=0)
        self.name = box[0]


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = Run(os.environ.get("CASE_FOLDER", "."))
run.share()
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
print(f"rank {dist.get_rank()} looks for the notes of {run.name}", flush=True)
dist.destroy_process_group()
