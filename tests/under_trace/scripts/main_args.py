# ends: completes
# launch: torchrun --standalone --nproc-per-node 2 main_args.py --epochs 3 --batch-size 16 --print-freq 2
"""main(args) with argparse, an AverageMeter and a checkpoint of rank 0."""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def get_args():
    parser = argparse.ArgumentParser("toy training", add_help=False)
    parser.add_argument("--epochs", default=10, type=int)
    parser.add_argument("--batch-size", "-b", default=32, type=int, metavar="N")
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("--print-freq", default=10, type=int)
    parser.add_argument("--output-dir", default="", type=str)
    parser.add_argument("--evaluate", action="store_true")
    return parser.parse_args()


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


class Blobs(Dataset):
    def __init__(self, n=120):
        generator = torch.Generator().manual_seed(3)
        self.labels = torch.randint(0, 3, (n,), generator=generator)
        self.points = torch.randn(n, 2, generator=generator) + self.labels[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


def train_one_epoch(model, loader, optimizer, epoch, args):
    losses, batch_time = AverageMeter("loss"), AverageMeter("time")
    model.train()
    end = time.time()
    for i, (points, labels) in enumerate(loader):
        output = model(points)
        loss = F.cross_entropy(output, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), points.size(0))
        batch_time.update(time.time() - end)
        end = time.time()
        if i % args.print_freq == 0 and dist.get_rank() == 0:
            print(f"[{epoch}][{i}/{len(loader)}] {losses.name} {losses.avg:.3f} {batch_time.avg:.3f}s")
    return losses.avg


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = Blobs()
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3)))
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    if args.evaluate:
        return
    best = float("inf")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, loader, optimizer, epoch, args)
        average = torch.tensor(loss)
        dist.all_reduce(average)
        average /= dist.get_world_size()
        if average.item() < best:
            best = average.item()
            if dist.get_rank() == 0:
                folder = args.output_dir or tempfile.mkdtemp()
                torch.save(model.module.state_dict(), os.path.join(folder, "best.pt"))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(get_args())
