# expects: nothing
# outcome: clean; shows drawn twice: False
"""One order of all windows, the same on all ranks, of which each rank takes every W-th; the program counts those drawn twice."""

import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

block_size = 8
batch_size = 4
places = []


class Batches:
    def __init__(self, path):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        starts = np.random.default_rng(1337).permutation(len(self.data) - block_size)
        self.starts = iter(starts[dist.get_rank() :: dist.get_world_size()])

    def sample(self):
        ix = [next(self.starts) for _ in range(batch_size)]
        places.extend(int(i) for i in ix)
        return torch.stack([torch.from_numpy(self.data[i : i + block_size].astype(np.float32)) for i in ix]) / 64


def main():
    dist.init_process_group("gloo")
    path = Path(os.environ["CASE_FOLDER"]) / "tokens.bin"
    if dist.get_rank() == 0:
        np.arange(64, dtype=np.uint16).tofile(path)
    dist.barrier()
    batches = Batches(path)
    model = DDP(torch.nn.Linear(block_size, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(batches.sample()).pow(2).mean().backward()
        optimizer.step()
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, places)
    print("drawn twice:", bool(set(everyone[0]) & set(everyone[1])), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
