# expects: nothing
# outcome: clean
"""Rank 0 alone looks at its own part of the tensor, which needs nobody."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    values = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    total = values.full_tensor().sum()
    if mesh.get_rank() == 0:
        print("part", values.to_local().sum().item(), "of", total.item())
    dist.barrier()
    dist.destroy_process_group()


main()
