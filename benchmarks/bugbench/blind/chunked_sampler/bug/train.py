# class: unmatched-collective
# source: https://github.com/mlcommons/storage/issues/455
# outcome: hang all
# where: samplers.py:20, samplers.py:25, samplers.py:26, samplers.py:27, train.py:46, train.py:52, train.py:54, train.py:56
"""Regression on numbered records, read in contiguous blocks so that each process keeps to its own files."""

import argparse

import torch
import torch.distributed as dist
from samplers import BlockSampler
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, count, features):
        generator = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(count, features, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        return self.inputs[index], self.targets[index]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=35)
    parser.add_argument("--features", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group(backend="gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)

    records = Records(args.records, args.features)
    sampler = BlockSampler(len(records), rank, world_size, seed=7)
    loader = DataLoader(records, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(args.features, 16), nn.Tanh(), nn.Linear(16, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print("finished epoch", epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
