# class: unmatched-collective
# outcome: some-rank Expected to have finished reduction
# where: train.py:43, train.py:44, train.py:65, train.py:83, train.py:84
"""Detector with an auxiliary denoising branch."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

RANK = int(os.getenv("RANK", -1))


class Boxes(Dataset):
    """Some images of the set show no object at all."""

    def __len__(self):
        return 64

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = 0 if i % 3 else 2
        return torch.randn(8, generator=g), torch.rand(n, 4, generator=g)


def collate(samples):
    images = torch.stack([s[0] for s in samples])
    index = torch.cat([torch.full((len(s[1]),), k) for k, s in enumerate(samples)]).long()
    return images, {"batch_idx": index, "bboxes": torch.cat([s[1] for s in samples])}


class Head(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.box = nn.Linear(dim, 4)
        self.denoise = nn.Embedding(4, dim)

    def forward(self, feat, targets=None):
        pred = self.box(feat)
        if self.training and targets is not None and len(targets["bboxes"]):
            noisy = self.denoise(targets["batch_idx"] % 4)
            dn = self.box(feat[targets["batch_idx"]] + noisy)
            return pred, dn
        return pred, None


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.head = Head(16)

    def forward(self, x, targets=None):
        return self.head(self.backbone(x), targets)


class Trainer:
    def __init__(self, epochs=2):
        self.epochs = epochs
        self.model = Detector()
        if RANK != -1:
            self.model = DDP(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        data = Boxes()
        self.sampler = DistributedSampler(data, shuffle=True)
        self.loader = DataLoader(data, batch_size=2, sampler=self.sampler, collate_fn=collate)

    def criterion(self, preds, targets):
        pred, dn = preds
        loss = pred.pow(2).mean()
        if dn is not None:
            loss = loss + (dn - targets["bboxes"]).abs().mean()
        return loss

    def train(self):
        for epoch in range(self.epochs):
            self.sampler.set_epoch(epoch)
            for images, targets in self.loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(images, targets), targets)
                loss.backward()
                self.optimizer.step()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    Trainer().train()
    dist.destroy_process_group()
