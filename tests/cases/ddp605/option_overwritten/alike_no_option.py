# expects: nothing
# outcome: clean
"""No option names the device: it is made of what the machine has."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class Config:
    batch_size = 8
    device = "cpu"


def main(config):
    dist.init_process_group("gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = f"cuda:{local_rank}" if torch.cuda.is_available() else config.device
    model = DDP(torch.nn.Linear(4, 1).to(device))
    torch.manual_seed(dist.get_rank())
    model(torch.randn(config.batch_size, 4, device=device)).pow(2).mean().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Config())
