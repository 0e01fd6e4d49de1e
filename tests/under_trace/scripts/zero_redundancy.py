# ends: completes
"""The optimizer's state sharded by ZeroRedundancyOptimizer, and consolidated for a checkpoint."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    model = DDP(nn.Sequential(*[nn.Linear(8, 8) for _ in range(3)]))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        print(len(optimizer.state_dict()["state"]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
