# expects: nothing
# outcome: clean; shows rank 0 reports
"""The rank is read in a conditional expression after the process group was made."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def train(rank):
    torch.manual_seed(1 + dist.get_rank())
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
    if rank == 0:
        print(f"rank {dist.get_rank()} reports", flush=True)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    train(rank)
    dist.destroy_process_group()


main()
