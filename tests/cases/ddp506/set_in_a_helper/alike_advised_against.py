# expects: nothing
# outcome: clean
"""Averages one number.

Do not set NCCL_IB_DISABLE=1 on machines that have InfiniBand: the job gets several times slower.
"""

import os

import torch
import torch.distributed as dist

slow = os.environ.get("NCCL_IB_DISABLE") == "1"
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
value = torch.ones(1, device=f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu")
dist.all_reduce(value)
if slow:
    print("InfiniBand is off")
dist.destroy_process_group()
