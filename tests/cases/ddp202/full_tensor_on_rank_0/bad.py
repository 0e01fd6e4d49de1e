# expects: DDP202:13
# outcome: hang all
"""Rank 0 alone asks for the whole of a tensor whose parts lie on the ranks, in a conditional expression."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def report(values):
    rank = dist.get_rank()
    whole = values.full_tensor() if rank == 0 else None
    if whole is not None:
        print("sum", whole.sum().item())
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    report(distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]))
    dist.destroy_process_group()


main()
