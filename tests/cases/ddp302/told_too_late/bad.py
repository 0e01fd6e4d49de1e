# expects: DDP302:26
# outcome: same-order
"""The epoch is set once before the loop over epochs, where a resumed run had left off."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def train(model, optimizer, loader, sampler, start_epoch, epochs):
    sampler.set_epoch(start_epoch)
    for epoch in range(start_epoch, epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        print("epoch", epoch, flush=True)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rows = torch.randn(32, 4)
    sampler = DistributedSampler(rows, num_replicas=dist.get_world_size(), rank=dist.get_rank(), shuffle=True)
    loader = DataLoader(rows, batch_size=4, sampler=sampler)
    model = DDP(torch.nn.Linear(4, 1))
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), loader, sampler, 0, 3)
    dist.destroy_process_group()
