# expects: nothing
# outcome: clean; shows 8 of 8 micro-batches
# launch: torchrun --standalone --nproc-per-node 4 fixed.py
"""A config object divides the micro-batches of an update by the number of processes, and stops where something is left over."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    gradient_accumulation_steps: int = 8
    updates: int = 2

    def per_process(self):
        world_size = int(os.environ.get("WORLD_SIZE", 1))
        if self.gradient_accumulation_steps % world_size != 0:
            raise ValueError(f"{self.gradient_accumulation_steps} micro-batches cannot be divided among {world_size} processes")
        return self.gradient_accumulation_steps // world_size


def main(config):
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    micro_steps = config.per_process()
    for _ in range(config.updates):
        for _ in range(micro_steps):
            (model(torch.randn(4, 4)).pow(2).mean() / micro_steps).backward()
        optimizer.step()
        optimizer.zero_grad()
    done = torch.tensor(micro_steps)
    dist.all_reduce(done)
    print(done.item(), "of", config.gradient_accumulation_steps, "micro-batches", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
