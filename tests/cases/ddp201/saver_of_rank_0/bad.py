# expects: DDP201:25
# outcome: hang all
"""The keeper of checkpoints exists on rank 0 only, and its method, in another file, ends in a barrier."""

import os

import torch
import torch.distributed as dist
from keeping import Keeper
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    keeper = Keeper(os.environ["CASE_FOLDER"]) if rank == 0 else None
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for step in range(4):
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 2 == 1 and keeper is not None:
            keeper.keep(model.module)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
