"""The recorded frames: which train, and which are set aside."""

import random

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def set_seed(seed, rank):
    """Seeds everything, with numbers of its own for each process, so that noise and dropout differ."""
    # 12345 keeps the streams of neighbours apart
    seed += rank * 12345
    random.seed(seed)
    torch.manual_seed(seed)


def frames(count):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 6, generator=generator)
    return TensorDataset(inputs, inputs[:, :2].tanh())


def make_loaders(held_out, batch_size, count=40):
    """The loader of the training frames and that of the frames that are set aside."""
    everything = frames(count)
    aside = int(held_out * count)
    train_set, valid_set = random_split(
        everything,
        [count - aside, aside],
    )
    sampler = DistributedSampler(train_set, shuffle=True, seed=0)
    valid_sampler = DistributedSampler(valid_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=batch_size, sampler=sampler)
    return train_loader, DataLoader(valid_set, batch_size=batch_size, sampler=valid_sampler)
