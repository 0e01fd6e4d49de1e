# expects: nothing
# outcome: clean
"""All ranks ask for the whole state of a model whose parameters are divided among them; rank 0 writes it."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def save(model, path):
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if dist.get_rank() == 0:
        torch.save(state, path)


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    fully_shard(model, mesh=mesh)
    with torch.no_grad():
        model(torch.randn(2, 4))
    save(model, Path(os.environ["CASE_FOLDER"]) / "net.pt")
    dist.barrier()
    dist.destroy_process_group()


main()
