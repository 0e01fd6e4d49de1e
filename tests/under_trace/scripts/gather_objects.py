# ends: completes
"""Predictions of all ranks as Python objects: all_gather_object, gather_object, and lists that differ in length."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def all_gather_list(items):
    gathered = [None for _ in range(dist.get_world_size())]
    dist.all_gather_object(gathered, items)
    return list(itertools.chain.from_iterable(gathered))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DDP(nn.Linear(3, 2))
    predictions = []
    for index in range(rank + 2):
        with torch.no_grad():
            predictions.append({"id": f"{rank}-{index}", "label": int(model.module(torch.randn(3)).argmax())})
    everything = all_gather_list(predictions)
    ids = {p["id"] for p in everything}
    assert len(ids) == 5, ids
    summary = {"rank": rank, "count": len(predictions)}
    received = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(summary, received, dst=0)
    if received is not None:
        print(sum(s["count"] for s in received))
    loss = model(torch.randn(4, 3)).sum()
    loss.backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
