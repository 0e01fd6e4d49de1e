# expects: nothing
# outcome: clean
"""A criterion compares the rank's rows with those of all ranks, which a helper gathers together with their graph."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
from torch.nn.parallel import DistributedDataParallel as DDP


def gather(rows):
    return torch.cat(torch.distributed.nn.functional.all_gather(rows.contiguous()))


class Contrast(torch.nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, rows):
        return (rows @ gather(rows).T / self.temperature).mean()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 2, bias=False))
criterion = Contrast(0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 4)[rank * 8 : rank * 8 + 8]
loss = criterion(model(x))
loss.backward()
optimizer.step()
dist.destroy_process_group()
