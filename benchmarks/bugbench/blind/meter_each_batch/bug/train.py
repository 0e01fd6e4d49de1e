# class: wrong-value
# source: https://github.com/facebookresearch/fairchem/pull/75
# outcome: shows over 120 of 32 structures
# where: metrics.py:26, metrics.py:27, train.py:43
"""Energy and force regression, validated on all processes together."""

import argparse

import torch
import torch.distributed as dist
from metrics import Evaluator
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Forces(nn.Module):
    def __init__(self, atoms):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(atoms * 3, 32), nn.SiLU(), nn.Linear(32, atoms * 3))

    def forward(self, positions):
        return self.net(positions.flatten(1)).view_as(positions)


def structures(count, atoms, seed):
    positions = torch.randn(count, atoms, 3, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(positions, -positions * positions.norm(dim=-1, keepdim=True))


class ForcesTrainer:
    def __init__(self, args):
        self.args = args
        self.model = DistributedDataParallel(Forces(args.atoms))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)

    def validate(self, loader):
        self.model.eval()
        evaluator = Evaluator()
        with torch.no_grad():
            for positions, forces in loader:
                evaluator.add("force_mae", (self.model(positions) - forces).abs().mean((1, 2)))
                evaluator.synchronize()
        return evaluator

    def train(self, train_set, valid_set):
        sampler = DistributedSampler(train_set)
        loader = DataLoader(train_set, batch_size=self.args.batch_size, sampler=sampler)
        valid_loader = DataLoader(valid_set, batch_size=4, sampler=DistributedSampler(valid_set, shuffle=False))
        for epoch in range(self.args.epochs):
            sampler.set_epoch(epoch)
            self.model.train()
            for positions, forces in loader:
                self.optimizer.zero_grad()
                nn.functional.l1_loss(self.model(positions), forces).backward()
                self.optimizer.step()
            result = self.validate(valid_loader)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}:", result.summary(len(valid_set)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--atoms", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    ForcesTrainer(args).train(structures(64, args.atoms, 1), structures(32, args.atoms, 2))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
