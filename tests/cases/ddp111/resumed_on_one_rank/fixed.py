# expects: nothing
# outcome: clean
"""Rank 0 reads the last checkpoint into the plain model; the wrap sends it to the others."""

import os
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def resume(model: torch.nn.Module, folder: str, rank: int) -> None:
    if rank != 0:
        return
    path = pathlib.Path(folder) / "last.pt"
    torch.save(torch.nn.Linear(4, 1).state_dict(), path)
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state)


dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
net = torch.nn.Linear(4, 1)
with tempfile.TemporaryDirectory() as folder:
    resume(net, folder, rank)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
