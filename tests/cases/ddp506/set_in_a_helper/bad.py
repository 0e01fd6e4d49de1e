# expects: DDP506:13, DDP506:14
# outcome: clean; shows direct copies are off: 1
"""A setup function turns two of NCCL's transports off for every machine, without a word on why."""

import os

import torch
import torch.distributed as dist


def setup_environment(backend):
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.setdefault("NCCL_P2P_DISABLE", "1")
    os.environ.update({"NCCL_IB_DISABLE": "1"})
    dist.init_process_group(backend)


def main():
    setup_environment("nccl" if torch.cuda.is_available() else "gloo")
    dist.barrier()
    print("direct copies are off:", os.environ.get("NCCL_P2P_DISABLE"), flush=True)
    dist.destroy_process_group()


main()
