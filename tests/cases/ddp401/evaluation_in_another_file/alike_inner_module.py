# expects: nothing
# outcome: clean
"""Rank 0 alone evaluates what was kept before the wrap: the inner module under another name."""

import torch
import torch.distributed as dist
from evaluation import evaluate
from torch.nn.parallel import DistributedDataParallel as DDP


def main(distributed=True):
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    model_without_ddp = model
    if distributed:
        model = DDP(model)
        model_without_ddp = model.module
    raw_model = model.module if distributed else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        if dist.get_rank() == 0:
            evaluate(model_without_ddp, [torch.randn(8, 4)])
            evaluate(raw_model, [torch.randn(8, 4)])
        dist.barrier()
    dist.destroy_process_group()


main()
