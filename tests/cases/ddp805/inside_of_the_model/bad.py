# expects: DDP805:17
# outcome: wrong-factor 0.5
"""The wrapped model gathers its own outputs and computes the loss; no gradient goes back through what was gathered."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Siamese(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 2, bias=False)

    def everybody(self, rows):
        found = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(found, rows)
        return torch.cat(found)

    def forward(self, x):
        rows = self.body(x)
        return (rows @ self.everybody(rows).T).mean()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(Siamese())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.randn(16, 4)[rank * 8 : rank * 8 + 8])
loss.backward()
optimizer.step()
dist.destroy_process_group()
