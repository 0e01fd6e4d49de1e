# class: unequal-collective
# source: https://github.com/EvolvingLMMs-Lab/lmms-eval/issues/322
# outcome: clean
"""Fine-tunes a scorer on question pairs for a few steps, then judges it on several tasks and writes one table."""

import argparse
import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TASKS = {"short": 12, "long": 20}


class Scorer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, pairs):
        return self.net(pairs)


def pairs(count, seed):
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(inputs, (inputs.sum(1) > 0).long())


def tune(model, steps):
    data = pairs(64, seed=0)
    sampler = DistributedSampler(data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(steps):
        sampler.set_epoch(epoch)
        for inputs, labels in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def judge(model, data, rank, world_size):
    """The samples of one task that fall to this process, each with its answer."""
    model.eval()
    rows = []
    for index in range(rank, len(data), world_size):
        inputs, label = data[index]
        answer = model.module(inputs[None]).argmax(1).item()
        rows.append({"sample": index, "answer": answer, "right": answer == label.item()})
    return rows


def collect(rows, world_size):
    """The samples of all processes, on process 0."""
    collected = [None] * world_size if dist.get_rank() == 0 else None
    dist.gather_object(rows, collected, dst=0)
    return [row for part in collected or [] for row in part]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--table", type=Path, default=Path(os.environ.get("CASE_FOLDER", tempfile.gettempdir())) / "table.json")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(Scorer(args.width))
    tune(model, args.steps)
    table = {}
    with torch.no_grad():
        for number, (task, count) in enumerate(sorted(TASKS.items())):
            rows = judge(model, pairs(count, seed=10 + number), rank, world_size)
            rows = collect(rows, world_size)
            table[task] = sum(row["right"] for row in rows) / count
    if rank == 0:
        args.table.write_text(json.dumps(table, indent=1))
        print(table)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
