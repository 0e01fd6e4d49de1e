# class: unmatched-collective
# source: https://github.com/Lightning-AI/pytorch-lightning/issues/19045
# outcome: clean
"""Sequence regression with a callback that keeps the best checkpoints."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from callbacks import BestCheckpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Sequence(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rnn = nn.GRU(1, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, values):
        hidden, _ = self.rnn(values)
        return self.head(hidden[:, -1])


def waves(count, seed):
    generator = torch.Generator().manual_seed(seed)
    phase = torch.rand(count, 1, generator=generator) * 6.28
    steps = torch.arange(9) / 4
    values = torch.sin(phase + steps)
    return TensorDataset(values[:, :-1, None], values[:, -1:])


def loss_on(model, loader):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for values, targets in loader:
            total += nn.functional.mse_loss(model.module(values), targets, reduction="sum").item()
            count += len(targets)
    model.train()
    return total / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.08)
    parser.add_argument("--width", type=int, default=6)
    parser.add_argument("--folder", default=os.environ.get("CASE_FOLDER", tempfile.gettempdir()))
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train_set, valid_set = waves(32, seed=1), waves(8, seed=2)
    sampler = DistributedSampler(train_set, seed=0)
    train_loader = DataLoader(train_set, batch_size=4, sampler=sampler)
    valid_loader = DataLoader(valid_set, batch_size=4, sampler=DistributedSampler(valid_set, shuffle=False))
    model = DistributedDataParallel(Sequence(args.width))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    best = BestCheckpoint(args.folder)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_loss = train_epoch(model, train_loader, optimizer)
        valid_loss = loss_on(model, valid_loader)
        best.epoch_end(model, epoch, valid_loss)
        if dist.get_rank() == 0:
            print(f"{epoch}: {train_loss:.4f} {valid_loss:.4f}", flush=True)
    dist.destroy_process_group()


def train_epoch(model, loader, optimizer):
    total = 0.0
    for values, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(values), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


if __name__ == "__main__":
    main()
