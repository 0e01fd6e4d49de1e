# class: unsynchronised
# outcome: clean
"""Hyper-parameter search: a sweep server hands one configuration to the run."""

import argparse
import json
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

DEFAULTS = {"lr": 1e-3, "weight_decay": 0.0, "momentum": 0.9}


class SweepClient:
    """Asks the sweep server for the next configuration (here: draws one)."""

    def __init__(self, project):
        self.project = project

    def next_config(self):
        return {"lr": random.choice([0.1, 0.03, 0.3]), "weight_decay": random.choice([1e-4, 1e-2])}

    def log(self, values):
        print(json.dumps(values))


def build_config(args, rank):
    config = dict(DEFAULTS)
    run = None
    if rank == 0:
        run = SweepClient(args.project)
        config.update(run.next_config())
    box = [config]
    dist.broadcast_object_list(box, src=0)
    return box[0], run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--project", default="demo")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    config, run = build_config(args, rank)

    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 10), torch.randn(128, 1))
    model = DDP(nn.Linear(10, 1))
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config["lr"], momentum=config["momentum"], weight_decay=config["weight_decay"]
    )
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.SUM)
        if rank == 0:
            run.log({"epoch": epoch, "loss": mean.item() / dist.get_world_size()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
