# expects: DDP605:20, DDP605:26, DDP605:27
# outcome: shows device cuda:0
# launch: torchrun --nnodes 2 --nproc-per-node 1 bad.py --device cpu
# devices: 1
"""--device cpu is overwritten by the GPU of the process in any distributed run."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def init_distributed(args):
    args.local_rank = int(os.environ.get("LOCAL_RANK", -1))
    if args.local_rank == -1:
        return
    dist.init_process_group(args.backend)
    args.device = f"cuda:{args.local_rank}"
    torch.cuda.set_device(args.device)


def get_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", type=str, default="cpu")
    parser.add_argument("--backend", default="gloo")
    return parser


def main():
    args = get_parser().parse_args()
    init_distributed(args)
    model = DDP(torch.nn.Linear(4, 1).to(args.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    for _ in range(2):
        model(torch.randn(8, 4, device=args.device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("device", args.device, flush=True)
    dist.destroy_process_group()


main()
