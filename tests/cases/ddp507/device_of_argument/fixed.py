# expects: nothing
# outcome: clean
# launch: torchrun --standalone --nproc-per-node 2 fixed.py --steps 3
# devices: 2
"""The device of each process is that of its local rank, which the launcher puts into the environment."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def options(parser):
    parser.add_argument("--steps", default=2, type=int)
    return parser.parse_args()


class Job:
    def __init__(self, config):
        self.config = config
        dist.init_process_group("gloo")
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))

    def run(self):
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(dist.get_rank())
        for _ in range(self.config.steps):
            model(torch.randn(4, 4)).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.destroy_process_group()


if __name__ == "__main__":
    Job(options(argparse.ArgumentParser())).run()
