# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 3 alike_group_of_those_ranks.py
"""A collective under a rank test over a group of exactly the ranks that pass it; the last rank has work of its own."""

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    workers = list(range(world_size - 1))
    group = dist.new_group(workers)
    value = torch.ones(1)
    if rank in workers:
        dist.all_reduce(value, group=group)
        dist.barrier(group=group)
    else:
        value.mul_(world_size)
    print(rank, value.item())
    dist.barrier()
    dist.destroy_process_group()


main()
