# expects: nothing
# outcome: clean
"""Trains through the wrapper, beside which a reference to the module is kept."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


dist.init_process_group("gloo")
raw_model = torch.nn.Linear(4, 1)
model = DDP(raw_model)
torch.manual_seed(1 + dist.get_rank())
train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=3)
dist.destroy_process_group()
