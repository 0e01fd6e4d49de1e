# expects: DDP504:9
# outcome: error all: Port out of range
"""The port of the rendezvous has one digit too many."""

import os

import torch.distributed as dist

os.environ["MASTER_PORT"] = "295002"
dist.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}", rank=int(os.environ["RANK"]), world_size=2
)
dist.barrier()
dist.destroy_process_group()
