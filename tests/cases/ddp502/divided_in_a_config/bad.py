# expects: DDP502:21
# outcome: clean; shows 4 of 6 micro-batches
# launch: torchrun --standalone --nproc-per-node 4 bad.py
"""A config object divides the micro-batches of an update by the number of processes; what is left over is lost."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    gradient_accumulation_steps: int = 6
    updates: int = 2

    def per_process(self):
        world_size = int(os.environ.get("WORLD_SIZE", 1))
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
