# expects: DDP501:28
# outcome: shows 16 samples an update
# launch: torchrun --standalone --nproc-per-node 2 bad.py --batch-size 8
"""The option is the batch of all processes, says its help, and every process takes as many samples."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=4, help="total batch size of an update on all GPUs")
    parser.add_argument("--lr", type=float, default=0.1)
    return parser.parse_args()


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(32, 4))
    sampler = DistributedSampler(data)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for (rows,) in loader:
            model(rows).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    done = torch.tensor([float(len(rows))])
    dist.all_reduce(done)
    print(f"{int(done)} samples an update")
    dist.destroy_process_group()


main(options())
