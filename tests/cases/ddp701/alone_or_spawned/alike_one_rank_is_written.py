# expects: nothing
# outcome: clean
# launch: python alike_one_rank_is_written.py --processes 2
"""Spawns its ranks, or calls the worker for rank 0 of 1 where one process is asked for; files stand under rank tests or in rank names."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def work(rank: int, world_size: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), Path(folder, "model.pt"))
    Path(folder, f"sample_{rank}.txt").write_text("of this rank")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    processes = parser.parse_args().processes
    folder = os.environ.get("CASE_FOLDER") or tempfile.mkdtemp()
    if processes == 1:
        work(rank=0, world_size=1, folder=folder)
    else:
        mp.spawn(work, args=(processes, folder), nprocs=processes, join=True)


if __name__ == "__main__":
    main()
