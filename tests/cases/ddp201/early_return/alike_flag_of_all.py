# expects: nothing
# outcome: clean
"""Conditions that sound like ranks and are equal on all of them: whether the job is distributed, in the usual spellings."""

import argparse
import os

import torch
import torch.distributed as dist


def setup(args):
    args.rank = int(os.environ.get("RANK", -1))
    args.distributed = args.rank != -1
    args.world_size = int(os.environ.get("WORLD_SIZE", "1"))
    args.multi_gpu = args.world_size > 1
    if args.rank >= 0:
        dist.init_process_group("gloo")
    return args


def is_dist():
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


parser = argparse.ArgumentParser()
args = setup(parser.parse_args())
value = torch.ones(1)
if args.distributed:
    dist.all_reduce(value)
if args.rank != -1:
    dist.barrier()
if args.multi_gpu or "SLURM_PROCID" in os.environ:
    dist.all_reduce(value)
if is_dist():
    dist.barrier()
if "WORLD_SIZE" in os.environ and int(os.environ["WORLD_SIZE"]) > 1:
    dist.broadcast(value, src=0)
print(value.item())
dist.destroy_process_group()
