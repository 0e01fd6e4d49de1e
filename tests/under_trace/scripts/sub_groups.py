# ends: completes
"""Sub-groups: a group a rank and one of all, used in turn."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def make_groups(world_size):
    return {tuple(ranks): dist.new_group(ranks) for ranks in [[r] for r in range(world_size)] + [list(range(world_size))]}


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    groups = make_groups(world)
    mine, everyone = groups[(rank,)], groups[tuple(range(world))]
    model = DDP(nn.Linear(4, 2), process_group=everyone)
    for step in range(2):
        value = torch.ones(1) * step
        dist.all_reduce(value, group=mine)
        model(torch.randn(2, 4)).sum().backward()
        dist.all_reduce(value, group=everyone)
        assert value.item() == step * world
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
