# class: rank-local-state
# source: https://github.com/mosaicml/composer/pull/151
# outcome: error 1: has no attribute
# where: checkpoint.py:25, train.py:33, train.py:34, train.py:35
"""Trains a tagger with a progress log, and keeps a checkpoint of model, optimizer and log each epoch."""

import argparse
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from checkpoint import ProgressLog, save_checkpoint
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def tagged(count, words):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(words, (count, 5), generator=generator)
    return TensorDataset(tokens, (tokens > words // 2).long())


class State:
    """What a run consists of."""

    def __init__(self, args, is_main):
        self.model = DistributedDataParallel(nn.Sequential(nn.Embedding(args.words, 8), nn.Linear(8, 2)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr)
        self.epoch = 0
        self.log = None
        if is_main:
            self.log = ProgressLog(args.folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--folder", type=Path, default=Path(os.environ.get("CASE_FOLDER", tempfile.gettempdir())))
    args = parser.parse_args()

    dist.init_process_group("gloo")
    is_main = dist.get_rank() == 0
    torch.manual_seed(0)
    data = tagged(48, args.words)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    state = State(args, is_main)
    while state.epoch < args.epochs:
        sampler.set_epoch(state.epoch)
        total = 0.0
        for tokens, tags in loader:
            state.optimizer.zero_grad()
            loss = nn.functional.cross_entropy(state.model(tokens).transpose(1, 2), tags)
            loss.backward()
            state.optimizer.step()
            total += loss.item()
        if state.log is not None:
            state.log.add(state.epoch, total / len(loader))
        state.epoch += 1
        save_checkpoint(state, args.folder / f"epoch-{state.epoch}.pt", is_main)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
