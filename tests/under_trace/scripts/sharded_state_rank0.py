# ends: hangs
"""Only rank 0 saves the state of a sharded optimizer, which needs all ranks."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Saver:
    def __init__(self, every):
        self.every = every

    def __call__(self, step, optimizer):
        if step % self.every or dist.get_rank() != 0:
            return
        optimizer.consolidate_state_dict(to=0)
        print(len(optimizer.state_dict()["param_groups"]))


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    save = Saver(every=2)
    for step in range(1, 4):
        optimizer.zero_grad()
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        save(step, optimizer)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
