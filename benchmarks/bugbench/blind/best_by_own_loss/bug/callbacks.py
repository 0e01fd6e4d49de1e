"""What is done at the end of an epoch."""

import os

import torch
import torch.distributed as dist


class BestCheckpoint:
    """Keeps the model with the least validation loss, under a name that tells the epoch."""

    def __init__(self, folder, min_delta=0.0):
        self.folder = folder
        self.min_delta = min_delta
        self.best = float("inf")
        self.path = None

    def name(self, epoch, loss):
        return os.path.join(self.folder, f"best-{epoch:03}.pt")

    def save(self, model, path):
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)

    def epoch_end(self, model, epoch, loss):
        if loss >= self.best - self.min_delta:
            return
        self.best = loss
        # all processes go by the name that the first one chose
        chosen = [self.name(epoch, loss)]
        old = self.path

        if old is None or old != chosen[0]:
            dist.broadcast_object_list(chosen, src=0)
        self.path = chosen[0]
        self.save(model, self.path)
        dist.barrier()
        if old is not None and dist.get_rank() == 0:
            os.remove(old)
