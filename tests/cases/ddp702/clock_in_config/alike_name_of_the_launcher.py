# expects: nothing
# outcome: clean
"""The run is named by what the launcher gives all processes; each rank writes to a temporary folder of its own."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
run = os.environ.get("SLURM_JOB_ID", os.environ.get("TORCHELASTIC_RUN_ID", "local"))
folder = os.path.join(os.environ["CASE_FOLDER"], run)
os.makedirs(folder, exist_ok=True)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
with tempfile.TemporaryDirectory() as scratch:
    torch.save(torch.get_rng_state(), os.path.join(scratch, "state.pt"))
if rank == 0:
    torch.save(model.module.state_dict(), os.path.join(folder, "last.pt"))
dist.destroy_process_group()
