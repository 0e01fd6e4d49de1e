# expects: nothing
# outcome: clean
# launch: torchrun --nnodes 2 --nproc-per-node 1 alike_node_rank.py
# devices: 1
"""The rank of the process is made of that of its node: what chooses the device is the number of the process on its node."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main_worker(gpu, ngpus_per_node, args):
    args.gpu = gpu
    args.rank = args.rank * ngpus_per_node + gpu
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    torch.cuda.set_device(args.gpu)
    model = torch.nn.Linear(4, 1).cuda(args.gpu)
    model = DDP(model, device_ids=[args.gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(args.rank)
    for _ in range(2):
        model(torch.randn(8, 4).cuda(args.gpu)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=int(os.environ.get("GROUP_RANK", 0)), help="node rank")
    main_worker(int(os.environ["LOCAL_RANK"]), torch.cuda.device_count(), parser.parse_args())
