# expects: nothing
# outcome: hang 1
"""Where the log of an earlier run is there, the master returns before the process group is made, in which the others wait."""

import datetime
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    rank = int(os.environ["RANK"])
    if rank == 0:
        log = os.path.join(os.environ.get("CASE_FOLDER", "."), "out.log")
        open(log, "a").close()  # an earlier run has left it
        if os.path.exists(log):
            print("the experiment exists already")
            return
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
