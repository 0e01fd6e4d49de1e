# expects: nothing
# outcome: clean; shows epoch 2: 128 rows
"""Each epoch has a meter of its own, which is synchronised in place at the end."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(x):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n):
        self.total += value * n
        self.count += n

    def synchronize(self):
        both = torch.tensor([self.count, self.total], dtype=torch.float64)
        dist.all_reduce(both)
        count, self.total = both.tolist()
        self.count = int(count)

    @property
    def mean(self):
        return self.total / max(self.count, 1)


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    meter = Meter()
    for batch in torch.randn(4, 16, 4):
        meter.update(train(batch).item(), len(batch))
    meter.synchronize()
    print(f"epoch {epoch}: {meter.count} rows", flush=True)
dist.destroy_process_group()
