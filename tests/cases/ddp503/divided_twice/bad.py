# expects: DDP503:25
# outcome: shows learning rate 0.0000 after half of the steps
"""The length of the loader is already that of a process, and is divided by the number of processes again."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parts(rows):
    data = TensorDataset(rows)
    sampler = DistributedSampler(data, drop_last=True)
    return DataLoader(data, batch_size=4, sampler=sampler, drop_last=True), sampler


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    loader, sampler = parts(torch.randn(32, 4))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=2 * len(loader) // int(os.environ["WORLD_SIZE"]))
    rates = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (rows,) in loader:
            model(rows).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            rates.append(schedule.get_last_lr()[0])
    print(f"learning rate {rates[len(rates) // 2]:.4f} after half of the steps")
    dist.destroy_process_group()


main()
