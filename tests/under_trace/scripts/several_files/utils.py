import os

import torch
import torch.distributed as dist


def get_world_size():
    return dist.get_world_size() if dist.is_initialized() else 1


def get_rank():
    return dist.get_rank() if dist.is_initialized() else 0


def init_distributed(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
    else:
        args.distributed = False
        return
    args.distributed = True
    dist.init_process_group(backend="gloo", world_size=args.world_size, rank=args.rank)
    dist.barrier()


def reduce_dict(values, average=True):
    world_size = get_world_size()
    if world_size < 2:
        return values
    with torch.no_grad():
        names = sorted(values)
        stacked = torch.stack([values[name] for name in names])
        dist.all_reduce(stacked)
        if average:
            stacked /= world_size
        return dict(zip(names, stacked))


def save_on_master(state, stats):
    if get_rank() == 0:
        print(sorted(state), {k: round(float(v), 3) for k, v in stats.items()})


def cleanup():
    if dist.is_initialized():
        dist.destroy_process_group()
