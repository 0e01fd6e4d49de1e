"""Sampling from a policy, and what its samples are worth."""

import torch
from torch.nn.parallel import DistributedDataParallel


def plain(model):
    """The model itself, whether it is wrapped or not."""
    if isinstance(model, DistributedDataParallel):
        return model.module
    return model


@torch.no_grad()
def sample(model, prompts, length, generator):
    model.eval()
    tokens = prompts
    for _ in range(length):
        chances = model(tokens)[:, -1].softmax(-1)
        tokens = torch.cat([tokens, torch.multinomial(chances, 1, generator=generator)], 1)
    model.train()
    return tokens


def advantages(rewards, eps=1e-4):
    """Rewards against their mean, in units of their deviation."""
    return (rewards - rewards.mean()) / (rewards.std() + eps)
