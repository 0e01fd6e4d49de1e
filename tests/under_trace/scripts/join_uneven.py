# ends: completes
"""Uneven inputs under model.join()."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = [torch.ones(2, 3) for _ in range(3 + 2 * rank)]
    with Join([model]):
        for batch in inputs:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
