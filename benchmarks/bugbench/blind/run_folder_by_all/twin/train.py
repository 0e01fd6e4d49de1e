# class: rank-local-state
# source: https://github.com/huawei-bayerlab/marigold-v2/pull/7
# outcome: clean
"""Fine-tunes a depth head on images; everything of a run lies in one new folder."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
from setup_run import save_config, set_up_run
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class DepthHead(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.encoder = nn.Conv2d(3, channels, 3, padding=1)
        self.encoder.requires_grad_(False)
        self.decoder = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, images):
        return self.decoder(self.encoder(images).relu())


def data(count):
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, 3, 6, 6, generator=generator)
    return TensorDataset(images, images.mean(1, keepdim=True))


def train(model, loader, sampler, args):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for images, depths in loader:
            optimizer.zero_grad()
            nn.functional.l1_loss(model(images), depths).backward()
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=os.environ.get("CASE_FOLDER", tempfile.gettempdir()))
    parser.add_argument("--name", default="depth")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    folder = set_up_run(args.output, args.name)
    if dist.get_rank() == 0:
        save_config(folder, vars(args))
    torch.manual_seed(0)
    images = data(16)
    sampler = DistributedSampler(images)
    loader = DataLoader(images, batch_size=4, sampler=sampler)
    model = DDP(DepthHead(4))
    train(model, loader, sampler, args)
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), os.path.join(folder, "checkpoints", "last.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
