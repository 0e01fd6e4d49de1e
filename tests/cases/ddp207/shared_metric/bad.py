# expects: DDP207:17
# outcome: shows rank 1 has 4602678819172646912
"""Rank 0 evaluates and shares a double; the other ranks receive it into a whole number."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Evaluator:
    def __init__(self, rank):
        self.rank = rank

    def evaluate(self, scores):
        if self.rank == 0:
            metric = torch.tensor(sum(scores) / len(scores), dtype=torch.double)
            dist.broadcast(metric, 0)
        else:
            metric = torch.tensor(0)
            dist.broadcast(metric, src=0)
        return metric.item()


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
print("rank", rank, "has", Evaluator(rank).evaluate([0.25, 0.75]), flush=True)
dist.destroy_process_group()
