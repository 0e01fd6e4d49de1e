# class: wrong-data
# source: https://github.com/TensorAuto/OpenTau/pull/498
# outcome: clean
"""Trains a policy on recorded frames and validates it on frames that were set aside."""

import argparse

import torch
import torch.distributed as dist
from data import make_loaders, set_seed
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Policy(nn.Module):
    def __init__(self, observations, actions):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observations, 16), nn.ReLU())
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(16, actions)

    def forward(self, frames):
        return self.head(self.dropout(self.trunk(frames)))


def validate(model, loader):
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for frames, actions in loader:
            total += torch.tensor([nn.functional.mse_loss(model.module(frames), actions, reduction="sum"), actions.numel()])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--held-out", type=float, default=0.2)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    set_seed(args.seed, dist.get_rank())
    train_loader, valid_loader = make_loaders(args.held_out, batch_size=4)
    print(f"rank {dist.get_rank()} held out {', '.join(map(str, sorted(valid_loader.dataset.indices)))}")

    model = DistributedDataParallel(Policy(6, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)
        model.train()
        for frames, actions in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(frames), actions).backward()
            optimizer.step()
        error = validate(model, valid_loader)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: error {error:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
