# expects: nothing
# outcome: clean
"""Rank 1 has more work, which sends nothing."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Budget:
    def __init__(self, steps):
        self.left = steps

    def spend(self):
        self.left -= 1
        return self.left >= 0


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    budget = Budget(3)
    while budget.spend():
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    extra = Budget(2 * dist.get_rank())
    while extra.spend():
        torch.randn(8, 4).square().mean()
    dist.destroy_process_group()


main()
