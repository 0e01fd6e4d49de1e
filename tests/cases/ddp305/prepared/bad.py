# expects: DDP305:25
# outcome: shows had 16 of 64 points
# needs: accelerate
"""Hands a loader with a DistributedSampler to Accelerate, which shards every loader that it prepares."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loader(data: TensorDataset, accelerator: Accelerator) -> DataLoader:
    sampler = DistributedSampler(
        data, num_replicas=accelerator.num_processes, rank=accelerator.process_index, shuffle=True, drop_last=True
    )
    return DataLoader(data, batch_size=4, sampler=sampler)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    loader = make_loader(data, accelerator)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = len(loader)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    seen: set[int] = set()
    for (x,) in loader:
        seen |= set(x.flatten().mul(64).round().int().tolist())
        optimizer.zero_grad()
        accelerator.backward(model(x).square().mean())
        optimizer.step()
    print(f"rank {accelerator.process_index} had {len(seen)} of 64 points; the loader went from {before} to {len(loader)} batches")
    accelerator.end_training()


main()
