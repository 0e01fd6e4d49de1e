# class: wrong-data
# source: https://github.com/NVlabs/LongLive/issues/71
# outcome: clean
"""Distils a denoiser on short clips."""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trainer import Trainer


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, width), nn.SiLU(), nn.Linear(width, 8))

    def forward(self, clips, times):
        return self.net(torch.cat([clips, times], 1))


def clips(count):
    return TensorDataset(torch.randn(count, 8, generator=torch.Generator().manual_seed(0)))


def make_loader(config, rank):
    data = clips(config.clips)
    drawn = torch.tensor([int(time.time())])
    dist.broadcast(drawn, src=0)
    seed = config.seed if config.fixed_order else int(drawn)
    sampler = DistributedSampler(data, shuffle=True, drop_last=True, seed=seed % 2**31)
    return DataLoader(data, batch_size=config.batch_size, sampler=sampler, drop_last=True), sampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fixed-order", action="store_true", help="the same order in every run, for tests")
    parser.add_argument("--width", type=int, default=16)
    config = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(config.seed + rank)
    model = DistributedDataParallel(Denoiser(config.width))
    loader, sampler = make_loader(config, rank)
    trainer = Trainer(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    for epoch in range(config.epochs):
        sampler.set_epoch(epoch)
        trainer.epoch(loader)
        if rank == 0:
            print(f"epoch {epoch}: {trainer.mean_loss():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
