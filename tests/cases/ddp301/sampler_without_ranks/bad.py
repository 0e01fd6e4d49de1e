# expects: DDP301:43
# outcome: same-samples
"""A sampler of the project's own groups rows by length, and knows nothing of ranks."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, count):
        self.lengths = [1 + index % 4 for index in range(count)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        row = torch.zeros(4)
        row[: self.lengths[index]] = index + 1.0
        return row


class ByLength(Sampler):
    def __init__(self, lengths, seed):
        self.lengths, self.seed, self.passes = lengths, seed, 0

    def __len__(self):
        return len(self.lengths)

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.passes)
        self.passes += 1
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        return iter(sorted(order, key=lambda index: self.lengths[index]))


def main(args):
    dist.init_process_group("gloo")
    data = Sentences(32)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=ByLength(data.lengths, args.seed))
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(args.epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
