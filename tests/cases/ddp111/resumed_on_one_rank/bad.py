# expects: DDP111:20
# outcome: parameters-differ
"""Rank 0 reads the last checkpoint into the wrapped model in a helper; the others return early."""

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
    model.load_state_dict({f"module.{name}": value for name, value in state.items()})


dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
with tempfile.TemporaryDirectory() as folder:
    model = DDP(torch.nn.Linear(4, 1))
    resume(model, folder, rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(1 + rank)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
