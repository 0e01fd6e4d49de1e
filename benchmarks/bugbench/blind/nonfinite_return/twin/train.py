# class: unmatched-collective
# source: https://github.com/pytorch/audio/issues/3749
# outcome: clean
"""Pre-training on masked frames of recordings of unequal length; each step is weighted by the frames of all processes."""

import argparse

import torch
import torch.distributed as dist
from step import Pretrainer
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Recordings(Dataset):
    """Synthetic recordings; one of them is broken, as happens in collected data."""

    def __init__(self, count, frames, broken):
        generator = torch.Generator().manual_seed(0)
        self.signals = torch.randn(count, frames, 4, generator=generator)
        self.lengths = torch.randint(frames // 2, frames + 1, (count,), generator=generator)
        if broken >= 0:
            self.signals[broken] = float("inf")

    def __len__(self):
        return len(self.signals)

    def __getitem__(self, index):
        return self.signals[index], self.lengths[index]


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, width), nn.GELU(), nn.Linear(width, 4))

    def forward(self, signals):
        return self.layers(signals)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--recordings", type=int, default=32)
    parser.add_argument("--broken", type=int, default=9, help="number of a recording that is damaged; -1 for none")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    recordings = Recordings(args.recordings, 10, args.broken)
    sampler = DistributedSampler(recordings, shuffle=False)
    loader = DataLoader(recordings, batch_size=args.batch_size, sampler=sampler)
    model = DDP(Encoder(width=8))
    trainer = Pretrainer(model, torch.optim.AdamW(model.parameters(), lr=args.lr))

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for signals, lengths in loader:
            loss = trainer.training_step(signals, lengths)
            if loss is not None and dist.get_rank() == 0:
                print(f"{trainer.steps}: {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
