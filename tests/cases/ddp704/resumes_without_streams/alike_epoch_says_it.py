# expects: nothing
# outcome: clean; shows drawn again: False
"""The order of the data comes from the epoch, which is in the checkpoint: a run that resumes goes on in the next order."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def run(path, epochs):
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    start = 0
    if path.exists():
        checkpoint = torch.load(path, weights_only=True)
        net.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
    model = DDP(net)
    data = torch.arange(16.0)[:, None]
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    order = []
    for epoch in range(start, start + epochs):
        sampler.set_epoch(epoch)
        for x in loader:
            order += x.flatten().tolist()
            (model(x) / 16).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.barrier()
        if dist.get_rank() == 0:
            torch.save({"state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
        dist.barrier()
    return order


dist.init_process_group("gloo")
path = Path(os.environ["CASE_FOLDER"]) / "last.pt"
print("drawn again:", run(path, 1) == run(path, 1), flush=True)
dist.destroy_process_group()
