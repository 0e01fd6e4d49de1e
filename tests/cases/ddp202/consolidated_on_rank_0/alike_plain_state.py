# expects: nothing
# outcome: clean
"""Rank 0 alone saves a plain model and a plain optimizer, and reads them back: nothing of that is collective."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def is_primary():
    return dist.get_rank() == 0


def save(path, model, optimizer):
    if not is_primary():
        return
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    state = torch.load(path, weights_only=True)
    optimizer.load_state_dict(state["optimizer"])


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    for _ in range(2):
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    save(Path(os.environ["CASE_FOLDER"]) / "last.pt", model, optimizer)
    dist.barrier()
    dist.destroy_process_group()


main()
