# expects: nothing
# outcome: clean; shows 8 samples an update
# launch: torchrun --standalone --nproc-per-node 2 fixed.py --batch-size 8
"""The option is the batch of all processes, and each process takes its part of it."""

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
    assert args.batch_size % dist.get_world_size() == 0
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(32, 4))
    sampler = DistributedSampler(data)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    loader = DataLoader(data, batch_size=args.batch_size // dist.get_world_size(), sampler=sampler)
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
