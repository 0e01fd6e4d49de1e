# expects: DDP604:32
# outcome: error all: no such data
"""A launcher class makes the group when it is entered and destroys it after its work, which here ends in an exception."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def read():
    raise FileNotFoundError("no such data")


class Job:
    def setup(self):
        dist.init_process_group()
        self.rank = dist.get_rank()

    def run(self):
        model = DDP(torch.nn.Linear(4, 1))
        model(torch.randn(8, 4)).pow(2).mean().backward()
        read()

    def cleanup(self):
        dist.destroy_process_group()


def main():
    job = Job()
    job.setup()
    job.run()
    job.cleanup()


if __name__ == "__main__":
    main()
