# expects: nothing
# outcome: clean
# launch: torchrun --nnodes 2 --nproc-per-node 1 fixed.py
"""Cuts the data by the number of all processes, on two nodes."""

import torch
import torch.distributed as dist
from topology import share
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_sampler(data: TensorDataset) -> DistributedSampler:
    return DistributedSampler(data, shuffle=True, **share())


def main() -> None:
    dist.init_process_group("gloo")
    data = TensorDataset(torch.arange(64.0).reshape(64, 1) / 64)
    sampler = make_sampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()


main()
