# expects: nothing
# outcome: clean
"""Weights without an optimizer, for whoever wants to use them: no run goes on from that."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def export(model, path):
    torch.save({"model": model.state_dict(), "classes": ["one"]}, path)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    net = torch.nn.Linear(4, 1)
    model = DDP(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.randn(8, 4)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    path = Path(os.environ["CASE_FOLDER"]) / "weights.pt"
    if dist.get_rank() == 0:
        export(net, path)
    dist.barrier()
    net.load_state_dict(torch.load(path, weights_only=True)["model"])
    dist.destroy_process_group()


main()
