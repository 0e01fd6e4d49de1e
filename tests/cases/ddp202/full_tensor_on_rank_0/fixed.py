# expects: nothing
# outcome: clean
"""All ranks ask for the whole of a tensor, rank 0 prints it."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def report(values):
    rank = dist.get_rank()
    whole = values.full_tensor()
    if rank == 0:
        print("sum", whole.sum().item())
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    report(distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]))
    dist.destroy_process_group()


main()
