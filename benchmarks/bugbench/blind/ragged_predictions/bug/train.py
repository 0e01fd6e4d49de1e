# class: unequal-collective
# source: https://github.com/pytorch/ignite/issues/1569
# outcome: abort 1
# where: gather.py:11, gather.py:12, train.py:61, train.py:62, train.py:69
"""Classifies sentences of numbers; the scores of all processes are put together before they are judged."""

import argparse

import torch
import torch.distributed as dist
from gather import gather_scores
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Bag(nn.Module):
    def __init__(self, vocabulary, width, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, width)
        self.output = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.output(self.embedding(tokens))


def sentences(count, vocabulary, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (count, 7), generator=generator)
    return TensorDataset(tokens, (tokens.sum(1) % 2).long())


def train_epoch(model, loader, optimizer):
    model.train()
    for tokens, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), labels).backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=21)
    parser.add_argument("--vocabulary", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    train_set = sentences(64, args.vocabulary, seed=1)
    held_out = sentences(args.held_out, args.vocabulary, seed=2)
    sampler = DistributedSampler(train_set, seed=4)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler)
    model = DDP(Bag(args.vocabulary, 8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    # every process judges its own part; no sample twice
    mine = Subset(held_out, range(rank, len(held_out), world_size))
    held_out_loader = DataLoader(mine, batch_size=args.batch_size)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer)
        model.eval()
        with torch.no_grad():
            scores = torch.cat([model.module(tokens) for tokens, _ in held_out_loader])
        everything = gather_scores(scores)
        if rank == 0:
            print(f"epoch {epoch}: {len(everything)} scores, mean margin {everything.diff(dim=1).abs().mean():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
