"""Means over a validation set, over all processes."""

import torch
import torch.distributed as dist


class Evaluator:
    """Keeps, for each metric, the sum of its values and how many there were."""

    def __init__(self):
        self.totals = {}
        self.counts = {}

    def add(self, name, values):
        if name not in self.totals:
            self.totals[name] = torch.zeros((), dtype=torch.float64)
            self.counts[name] = torch.zeros((), dtype=torch.float64)
        self.totals[name] += values.sum().double()
        self.counts[name] += len(values)

    def synchronize(self):
        """Adds up the sums of all processes."""
        if not dist.is_initialized():
            return
        for name in sorted(self.totals):
            dist.all_reduce(self.totals[name])
            dist.all_reduce(self.counts[name])

    def mean(self, name):
        return (self.totals[name] / self.counts[name]).item()

    def summary(self, expected):
        parts = []
        for name in sorted(self.totals):
            seen = int(self.counts[name])
            over = f"over {seen} of {expected} structures"
            parts.append(f"{name} {self.mean(name):.4f} {over}")
        return ", ".join(parts)
