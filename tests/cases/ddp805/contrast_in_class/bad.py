# expects: DDP805:13
# outcome: wrong-factor 0.5
"""A criterion compares the rank's rows with those of all ranks, which a helper gathers as constants."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def gather(rows):
    found = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(found, rows.contiguous())
    return torch.cat(found)


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
