# ends: hangs
"""Two stages that both receive first."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn


class Stage(nn.Module):
    def __init__(self, index, count):
        super().__init__()
        self.index, self.count = index, count
        self.layer = nn.Linear(4, 4)

    @property
    def previous(self):
        return (self.index - 1) % self.count

    @property
    def next(self):
        return (self.index + 1) % self.count

    def run(self, x):
        dist.recv(x, src=self.previous)
        y = self.layer(x).detach()
        dist.send(y, dst=self.next)
        return y


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    stage = Stage(dist.get_rank(), dist.get_world_size())
    stage.run(torch.zeros(2, 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
