# expects: nothing
# outcome: clean
"""A setup function leaves the transports to NCCL and has it say which it takes."""

import os

import torch
import torch.distributed as dist


def setup_environment(backend):
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("NCCL_DEBUG", "INFO")
    dist.init_process_group(backend)


def main():
    setup_environment("nccl" if torch.cuda.is_available() else "gloo")
    dist.barrier()
    print("direct copies are off:", os.environ.get("NCCL_P2P_DISABLE"), flush=True)
    dist.destroy_process_group()


main()
