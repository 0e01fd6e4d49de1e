"""Evaluates a model on what a loader gives this rank."""

import torch
import torch.distributed as dist


@torch.no_grad()
def accuracy(model, loader, everywhere: bool) -> float:
    correct = torch.zeros(2)
    for x, y in loader:
        correct[0] += ((model(x) > 0) == (y > 0)).sum()
        correct[1] += len(x)
    if everywhere:
        dist.all_reduce(correct)
    return (correct[0] / correct[1]).item()
