# ends: completes
"""Gradient accumulation with no_sync on all but the last micro batch, by nullcontext."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ACCUMULATE = 4


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    micro_batches = [torch.randn(2, 4) for _ in range(10)]
    for i, micro in enumerate(micro_batches):
        last = (i + 1) % ACCUMULATE == 0 or i + 1 == len(micro_batches)
        context = contextlib.nullcontext() if last else model.no_sync()
        with context:
            loss = model(micro).mean() / ACCUMULATE
            loss.backward()
        if last:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
