# expects: nothing
# outcome: clean
"""The device is computed from the option, from the backend, and from whether there is a GPU."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--backend", default="gloo")
args = parser.parse_args()
local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group(args.backend)
if args.backend == "nccl":
    args.device = f"cuda:{local_rank}"
elif args.device != "cpu":
    args.device = f"{args.device}:{local_rank}"
device = torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
model = DDP(torch.nn.Linear(4, 1).to(args.device))
model(torch.randn(8, 4, device=args.device)).pow(2).mean().backward()
print(device, args.device)
dist.destroy_process_group()
