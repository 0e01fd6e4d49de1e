"""All ranks on one device: the local rank is read from an option that torchrun does not pass, so it is 0 everywhere.

Run by check.py with two ranks on gloo, which allows what NCCL refuses. Needs a CUDA device.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--backend", default="nccl")
args = parser.parse_args()

torch.cuda.set_device(args.local_rank)
dist.init_process_group(args.backend)
torch.manual_seed(dist.get_rank())
model = DDP(torch.nn.Linear(4, 1).cuda(args.local_rank), device_ids=[args.local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(8, 4, device=args.local_rank)
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
