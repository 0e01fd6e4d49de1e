# expects: nothing
# outcome: clean
"""Each process makes the folder at the start, where it may exist, and the later look never finds it absent."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(folder):
    dist.init_process_group("gloo")
    runs = Path(folder)
    if not os.path.exists(runs):
        time.sleep(0.2)
        os.mkdir(runs)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    dist.destroy_process_group()


folder = os.path.join(os.environ["CASE_FOLDER"], "runs")
if folder:
    Path(folder).mkdir(parents=True, exist_ok=True)
main(folder)
