# expects: DDP507:12
# outcome: all-on-device 0
# devices: 2
"""The device is an option that the launcher used to set; torchrun sets none, and the default stays on every rank."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
dist.barrier()
dist.destroy_process_group()
