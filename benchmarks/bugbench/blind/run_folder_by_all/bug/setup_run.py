"""The folder of a run."""

import json
import os

import torch.distributed as dist


def save_config(folder, config):
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2)


def set_up_run(output, name):
    """Makes the folder of a new run; an old one of that name is an error."""
    if dist.is_initialized() and dist.get_rank() == 0:
        print("the run is kept in", os.path.join(output, name))
    folder = os.path.join(output, name)
    for part in ("checkpoints", "pictures"):
        os.makedirs(os.path.join(folder, part), exist_ok=False)
    return folder
