# expects: nothing
# outcome: clean
"""A criterion object divides by the number of positives of a rank in the mean."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Criterion:
    def __init__(self, power):
        self.power = power

    def __call__(self, scores, labels):
        positive = labels > 0
        number = positive.sum().float()
        dist.all_reduce(number)
        number = (number / dist.get_world_size()).clamp(min=1)
        return scores[positive].pow(self.power).sum() / number


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1, bias=False))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = Criterion(1)
x = torch.tensor([[2.0], [2.0], [2.0], [2.0]]) if rank == 0 else torch.tensor([[0.5], [0.5], [0.5], [0.5]])
labels = torch.tensor([1, 1, 0, 0]) if rank == 0 else torch.tensor([1, 1, 1, 1])
loss = criterion(model(x)[:, 0], labels)
loss.backward()
optimizer.step()
dist.destroy_process_group()
