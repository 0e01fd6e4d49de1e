# ends: completes
"""Rank 0 writes and reads a JSON configuration and broadcasts it as an object."""

import json
import pathlib
import tempfile
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def load(path):
    config = json.loads(path.read_text())
    return {key.replace("-", "_"): value for key, value in config.items()}


def main():
    dist.init_process_group("gloo")
    box = [None]
    if dist.get_rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps({"hidden-size": 6, "num-steps": 3, "log-every": 2}))
            box = [load(path)]
    dist.broadcast_object_list(box, src=0)
    config = SimpleNamespace(**box[0])
    model = DDP(nn.Linear(config.hidden_size, 1))
    for step in range(config.num_steps):
        model(torch.randn(2, config.hidden_size)).sum().backward()
        if (step + 1) % config.log_every == 0:
            dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
