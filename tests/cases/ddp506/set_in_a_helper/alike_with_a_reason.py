# expects: nothing
# outcome: clean
"""A transport is turned off where a user asks for it or where a known fault is worked around; another one is turned on."""

import argparse
import os

import torch
import torch.distributed as dist


def main(args):
    if args.no_infiniband:
        os.environ["NCCL_IB_DISABLE"] = "1"
    # RTX 4090: direct copies hang with this driver
    os.environ["NCCL_P2P_DISABLE"] = "1"
    os.environ["NCCL_SHM_DISABLE"] = "0"
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    dist.barrier()
    dist.destroy_process_group()


parser = argparse.ArgumentParser()
parser.add_argument("--no-infiniband", action="store_true")
main(parser.parse_args())
