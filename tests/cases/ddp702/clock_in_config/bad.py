# expects: DDP702:26
# outcome: shows saved in 2 folders
"""A config object names the run by the clock of the process that makes it; all ranks save their own state there."""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def run_name():
    return "run-" + str(time.time_ns() // 1_000_000)


@dataclass
class Config:
    root: str = os.environ["CASE_FOLDER"]
    lr: float = 0.1


def prepare(config):
    folder = os.path.join(config.root, run_name())
    os.makedirs(folder, exist_ok=True)
    return folder


dist.init_process_group("gloo")
rank = dist.get_rank()
time.sleep(0.05 * rank)
config = Config()
folder = prepare(config)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
torch.save(torch.get_rng_state(), os.path.join(folder, f"random-{rank}.pt"))
dist.barrier()
if rank == 0:
    print(f"saved in {len(os.listdir(config.root))} folders", flush=True)
dist.destroy_process_group()
