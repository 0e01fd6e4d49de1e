"""Writes checkpoints."""

from pathlib import Path

import torch


class Checkpoint:
    """A checkpoint of a model and of an optimizer whose state is divided among the ranks."""

    def __init__(self, folder, rank):
        self.path = Path(folder) / "last.pt"
        self.rank = rank

    def save(self, model, optimizer):
        """Writes the file."""
        optimizer.consolidate_state_dict(to=0)
        if self.rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, self.path)
