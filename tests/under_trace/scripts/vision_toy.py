# ends: completes
# launch: torchrun --standalone --nproc-per-node 2 vision_toy.py --arch small --dist-url env:// --seed 1
"""In the style of the ImageNet example: choices of architectures, accuracy of top k, adjusted learning rate."""

import argparse
import os
import random
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.parallel
import torch.optim
import torch.utils.data
import torch.utils.data.distributed
from torch.utils.data import Subset


def small(num_classes=5):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes)
    )


def wide(num_classes=5):
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, num_classes)
    )


model_names = sorted(name for name in ("small", "wide") if callable(globals()[name]))

parser = argparse.ArgumentParser(description="Toy ImageNet Training")
parser.add_argument("-a", "--arch", metavar="ARCH", default="wide", choices=model_names)
parser.add_argument("-j", "--workers", default=0, type=int)
parser.add_argument("--epochs", default=2, type=int)
parser.add_argument("--start-epoch", default=0, type=int)
parser.add_argument("-b", "--batch-size", default=8, type=int)
parser.add_argument("--lr", "--learning-rate", default=0.1, type=float, dest="lr")
parser.add_argument("-p", "--print-freq", default=2, type=int)
parser.add_argument("--resume", default="", type=str)
parser.add_argument("-e", "--evaluate", dest="evaluate", action="store_true")
parser.add_argument("--world-size", default=-1, type=int)
parser.add_argument("--rank", default=-1, type=int)
parser.add_argument("--dist-url", default="tcp://224.66.41.62:23456", type=str)
parser.add_argument("--dist-backend", default="gloo", type=str)
parser.add_argument("--seed", default=None, type=int)
best_acc1 = 0


class FakeImages(torch.utils.data.Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        return torch.rand(1, 8, 8, generator=g), index % 5


def main():
    args = parser.parse_args()
    if args.seed is not None:
        random.seed(args.seed)
        torch.manual_seed(args.seed)
    if args.dist_url == "env://" and args.world_size == -1:
        args.world_size = int(os.environ["WORLD_SIZE"])
    args.distributed = args.world_size > 1
    main_worker(args)


def main_worker(args):
    global best_acc1
    if args.distributed:
        if args.dist_url == "env://" and args.rank == -1:
            args.rank = int(os.environ["RANK"])
        dist.init_process_group(backend=args.dist_backend, init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    model = getattr(sys.modules[__name__], args.arch)()
    if args.distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    if args.resume and os.path.isfile(args.resume):
        args.start_epoch = torch.load(args.resume)["epoch"]
    train_dataset, val_dataset = FakeImages(50), FakeImages(21)
    if args.distributed:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_dataset)
        val_sampler = torch.utils.data.distributed.DistributedSampler(val_dataset, shuffle=False, drop_last=True)
    else:
        train_sampler = val_sampler = None
    train_loader = torch.utils.data.DataLoader(
        train_dataset, args.batch_size, shuffle=(train_sampler is None), num_workers=args.workers, sampler=train_sampler
    )
    val_loader = torch.utils.data.DataLoader(val_dataset, args.batch_size, num_workers=args.workers, sampler=val_sampler)
    if args.evaluate:
        validate(val_loader, model, args)
        return
    for epoch in range(args.start_epoch, args.epochs):
        if args.distributed:
            train_sampler.set_epoch(epoch)
        train(train_loader, model, criterion, optimizer, epoch, args)
        acc1 = validate(val_loader, model, args)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        if is_best and args.rank == 0:
            print("best", round(best_acc1, 2))
    dist.destroy_process_group()


def train(loader, model, criterion, optimizer, epoch, args):
    model.train()
    for i, (images, target) in enumerate(loader):
        output = model(images)
        loss = criterion(output, target)
        acc1, acc5 = accuracy(output, target, topk=(1, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % args.print_freq == 0 and args.rank == 0:
            print(f"Epoch: [{epoch}][{i + 1}/{len(loader)}] {loss.item():.3f} {acc1[0]:.1f} {acc5[0]:.1f}")


def validate(loader, model, args):
    def run(part, base):
        nonlocal hits, count
        with torch.no_grad():
            for i, (images, target) in enumerate(part):
                output = model(images)
                (acc1,) = accuracy(output, target, topk=(1,))
                hits += acc1.item() * images.size(0)
                count += images.size(0)

    hits, count = 0.0, 0
    model.eval()
    run(loader, 0)
    if args.distributed:
        both = torch.tensor([hits, count])
        dist.all_reduce(both, dist.ReduceOp.SUM, async_op=False)
        hits, count = both.tolist()
        if len(loader.sampler) * args.world_size < len(loader.dataset):
            rest = Subset(loader.dataset, range(len(loader.sampler) * args.world_size, len(loader.dataset)))
            run(torch.utils.data.DataLoader(rest, args.batch_size), len(loader))
    return hits / count


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


if __name__ == "__main__":
    main()
