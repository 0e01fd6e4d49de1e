# expects: nothing
# outcome: clean
"""A launcher class destroys the group whatever its work does; the exception is reported on the way."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Job:
    def __enter__(self):
        dist.init_process_group()
        return self

    def __exit__(self, *error):
        dist.destroy_process_group()

    def run(self):
        model = DDP(torch.nn.Linear(4, 1))
        model(torch.randn(8, 4)).pow(2).mean().backward()


def main():
    with Job() as job:
        job.run()
    assert not dist.is_initialized()


if __name__ == "__main__":
    main()
