# expects: nothing
# outcome: clean
"""Each rank writes files of its own; the folder may be there; the settings that all write are the same text."""

import json
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
folder = os.path.join(os.environ["CASE_FOLDER"], "run")
os.makedirs(folder, exist_ok=True)
settings = {"lr": 0.1, "steps": 2}
with open(os.path.join(folder, "settings.json"), "w") as file:
    json.dump(settings, file)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
for step in range(settings["steps"]):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
torch.save(torch.get_rng_state(), f"{folder}/random-{rank}.pt")
with open(os.path.join(folder, "log.{}.txt".format(rank)), "a") as log:
    log.write(f"{rank}\n")
dist.destroy_process_group()
