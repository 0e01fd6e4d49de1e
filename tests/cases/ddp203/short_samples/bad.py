# expects: DDP203:32
# outcome: hang all
"""A rank leaves out a batch of samples that are too short, and with it the micro-batch that closes its window."""

import contextlib
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


@dataclass
class Config:
    window: int = 2
    shortest: float = 0.0


def batches():
    rows = torch.randn(96, 4, generator=torch.Generator().manual_seed(0)).abs()
    rows[49:64:2] = -9.0
    return DataLoader(rows, batch_size=8, sampler=DistributedSampler(rows, shuffle=False))


def main(config):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for index, x in enumerate(batches()):
        if x.max().item() < config.shortest:
            continue
        last = (index + 1) % config.window == 0
        with contextlib.nullcontext() if last else model.no_sync():
            (model(x).pow(2).mean() / config.window).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
