"""Keeps checkpoints."""

import os

import torch
import torch.distributed as dist


class Keeper:
    """Writes a checkpoint under a number, and waits until all ranks have seen it."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def keep(self, model):
        torch.save(model.state_dict(), os.path.join(self.folder, f"{self.count}.pt"))
        self.count += 1
        dist.barrier()
