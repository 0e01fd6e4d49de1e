"""Starts the group and the generators of the libraries."""

import random

import torch
import torch.distributed as dist


def seed_everything(seed: int) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


def start(seed: int) -> int:
    dist.init_process_group("gloo")
    seed_everything(seed)
    return dist.get_rank()
