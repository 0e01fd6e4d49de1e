# ends: completes
"""Resumes from a checkpoint that rank 0 wrote in the same run, with barriers on both sides."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def save_checkpoint(path, model, optimizer, epoch):
    if dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
    dist.barrier()


def load_checkpoint(path, model, optimizer):
    if not os.path.isfile(path):
        return 0
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    model.module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"] + 1


def train(path, epochs):
    model = DDP(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    start = load_checkpoint(path, model, optimizer)
    for epoch in range(start, epochs):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.rand(4, 3)).sum().backward()
            optimizer.step()
        save_checkpoint(path, model, optimizer, epoch)
    return epochs - start


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    path = os.path.join(folder[0], "checkpoint.pt")
    ran = train(path, 2)
    ran += train(path, 4)
    assert ran == 4, ran
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
