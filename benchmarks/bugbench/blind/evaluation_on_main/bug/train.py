# class: unmatched-collective
# source: https://github.com/pytorch/pytorch/issues/54059
# outcome: hang all
# where: engine.py:36, train.py:66, train.py:67
"""Trains a small convolutional classifier and looks at the held-out images after each epoch."""

import argparse
import os

import torch
import torch.distributed as dist
from engine import evaluate, train_one_epoch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Classifier(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.features(images).flatten(1))


def images(count, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count,), generator=generator)
    pixels = torch.randn(count, 3, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1) / classes
    return TensorDataset(pixels, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)

    train_set = images(64, args.classes, seed=1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    valid_loader = DataLoader(images(32, args.classes, seed=2), batch_size=args.batch_size)

    model = DistributedDataParallel(Classifier(args.width, args.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, criterion, optimizer)
        if rank == 0:
            accuracy = evaluate(model, valid_loader)
            print(f"epoch {epoch}: loss {loss:.3f}, accuracy {accuracy:.3f}")
        dist.barrier()

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
