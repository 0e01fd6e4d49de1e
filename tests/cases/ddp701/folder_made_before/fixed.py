# expects: nothing
# outcome: clean
"""Each rank makes the folder, which may exist."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main(folder):
    dist.init_process_group("gloo")
    runs = Path(folder)
    time.sleep(0.1 * dist.get_rank())
    os.makedirs(runs, exist_ok=True)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    dist.destroy_process_group()


folder = os.path.join(os.environ["CASE_FOLDER"], "runs")
main(folder)
