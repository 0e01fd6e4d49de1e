# expects: DDP119:24
# outcome: clean; reductions 9
"""Three updates of three micro-batches each, of which every one is reduced."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

accumulation_steps = 3


def loss_of(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x.sum(1, keepdim=True)).pow(2).mean() / accumulation_steps


dist.init_process_group("gloo")
torch.manual_seed(1 + dist.get_rank())
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    for micro_step in range(accumulation_steps):
        x = torch.randn(8, 4)
        loss = loss_of(model, x)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
