# expects: nothing
# outcome: clean
"""Random windows of a file that only this rank reads: its part of the data."""

import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def get_batch(data, count, block):
    starts = torch.randint(len(data) - block, (count,))
    return torch.stack([torch.from_numpy(data[i : i + block].astype(np.float32)) for i in starts.tolist()]) / 64


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    path = Path(os.environ["CASE_FOLDER"]) / f"shard-{rank}.bin"
    np.arange(64 * rank, 64 * rank + 64, dtype=np.uint16).tofile(path)
    data = np.memmap(path, dtype=np.uint16, mode="r")
    torch.manual_seed(7 + rank)
    model = DDP(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(get_batch(data, 4, 8)).pow(2).mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
