# expects: DDP302:32
# outcome: same-order
"""A trainer class runs epochs over a loader whose sampler is never told which."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, loader, optimizer):
        self.model, self.loader, self.optimizer = model, loader, optimizer

    def _run_batch(self, x):
        self.optimizer.zero_grad()
        self.model(x).pow(2).mean().backward()
        self.optimizer.step()

    def _run_epoch(self, epoch):
        for (x,) in self.loader:
            self._run_batch(x)

    def train(self, max_epochs):
        for epoch in range(max_epochs):
            self._run_epoch(epoch)


def prepare_loader(data, batch_size):
    return DataLoader(data, batch_size=batch_size, shuffle=False, sampler=DistributedSampler(data))


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    loader = prepare_loader(TensorDataset(torch.randn(32, 4)), args.batch_size)
    model = DDP(torch.nn.Linear(4, 1))
    Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=0.1)).train(args.total_epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--total_epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=4)
    main(parser.parse_args())
