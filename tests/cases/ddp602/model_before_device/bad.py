# expects: DDP602:17
# outcome: all-on-device 0
# devices: 2
"""A builder moves the model to the current device before anybody has set one."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Builder:
    def __init__(self, width):
        self.width = width

    def build(self):
        net = torch.nn.Linear(self.width, 1)
        return net.cuda()


def main():
    dist.init_process_group("nccl")
    model = DDP(Builder(4).build())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(2, 4).cuda(non_blocking=True)
    model(x).sum().backward()
    optimizer.step()
    dist.destroy_process_group()


main()
