# expects: nothing
# outcome: clean
"""Rank 0 alone asks for the state of a model that every rank has whole: the same call has nothing to gather."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    model(torch.randn(2, 4)).pow(2).mean().backward()
    optimizer.step()
    if dist.get_rank() == 0:
        torch.save(get_model_state_dict(model), Path(os.environ["CASE_FOLDER"]) / "net.pt")
    dist.barrier()
    dist.destroy_process_group()


main()
