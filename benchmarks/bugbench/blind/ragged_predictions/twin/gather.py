"""Puts the rows of all processes together."""

import torch
import torch.distributed as dist


def gather_scores(scores):
    """The scores of all processes, those of the first process first."""
    world_size = dist.get_world_size()
    scores = scores.contiguous()
    rows = torch.tensor([len(scores)])
    all_rows = [torch.zeros_like(rows) for _ in range(world_size)]
    dist.all_gather(all_rows, rows)
    longest = int(max(all_rows))
    padded = scores.new_zeros(longest, *scores.shape[1:])
    padded[: len(scores)] = scores
    parts = [torch.empty_like(padded) for _ in range(world_size)]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, all_rows)])
