# expects: DDP601:26
# outcome: device 1
# launch: torchrun --nnodes 2 --nproc-per-node 1 bad.py
# devices: 1
"""A device class takes the rank of the process for the index of its GPU: the second node has none of that number."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Place:
    rank: int
    world_size: int

    @classmethod
    def of_environment(cls):
        return cls(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))

    @property
    def device(self):
        return torch.device(f"cuda:{self.rank}" if torch.cuda.is_available() else "cpu")


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    place = Place.of_environment()
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    model = DDP(torch.nn.Linear(4, 1).to(place.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(place.rank)
    for _ in range(2):
        model(torch.randn(8, 4).to(place.device)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
