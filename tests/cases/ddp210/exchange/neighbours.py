"""Exchanges a tensor with the other rank."""

import torch
import torch.distributed as dist


class Pair:
    """This rank and its neighbour."""

    def __init__(self):
        self.rank = dist.get_rank()
        self.other = self.rank + 1 if self.rank % 2 == 0 else self.rank - 1

    def waits_first(self, tensor):
        """Both receive before they send."""
        result = torch.empty_like(tensor)
        dist.recv(result, src=self.other)
        dist.send(tensor, dst=self.other)
        return result

    def in_turn(self, tensor):
        """The even rank sends first."""
        result = torch.empty_like(tensor)
        if self.rank % 2 == 0:
            dist.send(tensor, dst=self.other)
            dist.recv(result, src=self.other)
        else:
            dist.recv(result, src=self.other)
            dist.send(tensor, dst=self.other)
        return result

    def at_once(self, tensor):
        """Both post both."""
        result = torch.empty_like(tensor)
        work = dist.isend(tensor, self.other)
        dist.recv(result, src=self.other)
        work.wait()
        return result
