# expects: nothing
# outcome: clean
"""The keeper of checkpoints exists on rank 0 only; all ranks meet in a barrier after it has written."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Keeper:
    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def keep(self, model):
        torch.save(model.state_dict(), os.path.join(self.folder, f"{self.count}.pt"))
        self.count += 1


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
        if step % 2 == 1:
            if keeper is not None:
                keeper.keep(model.module)
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
