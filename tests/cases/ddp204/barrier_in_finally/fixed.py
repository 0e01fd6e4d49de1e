# expects: nothing
# outcome: clean
"""The clean-up waits for nobody; the ranks meet at the end of the normal way."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def load(step, rank):
    if step == 9 and rank == 1:
        raise ValueError("a broken sample")
    return torch.randn(8, 4)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        for step in range(3):
            optimizer.zero_grad()
            model(load(step, rank)).pow(2).mean().backward()
            optimizer.step()
        dist.barrier()
    finally:
        dist.destroy_process_group()


main()
