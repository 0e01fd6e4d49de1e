# expects: nothing
# outcome: clean
"""All ranks evaluate the wrapper, each its part, and the sums are reduced; only the report is rank 0's."""

import torch
import torch.distributed as dist
from evaluation import evaluate
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for epoch in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        mean = torch.tensor(evaluate(model, [torch.randn(8, 4) for _ in range(2)]))
        dist.all_reduce(mean)
        if rank == 0:
            print(epoch, (mean / dist.get_world_size()).item())
    dist.destroy_process_group()


main()
