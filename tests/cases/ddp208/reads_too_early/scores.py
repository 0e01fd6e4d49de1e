"""Gathers the scores of all ranks beside other work."""

import torch
import torch.distributed as dist


class Scores:
    """Starts a gathering, and gives its result later."""

    def __init__(self):
        self.handle = None

    def start(self, score):
        """Begins to gather the scores of all ranks."""
        self.gathered = [torch.zeros(1) for _ in range(dist.get_world_size())]
        self.handle = dist.all_gather(self.gathered, score, async_op=True)

    def early(self):
        """What has come so far."""
        return torch.cat(self.gathered)

    def result(self):
        """The scores of all ranks."""
        self.handle.wait()
        return torch.cat(self.gathered)
