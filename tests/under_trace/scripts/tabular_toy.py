# ends: completes
"""A table from CSV text with numpy: columns scaled by statistics of all ranks, an embedding a category."""

import csv
import io

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

ROWS = "age,city,income,bought\n" + "\n".join(
    f"{20 + i % 40},{('oslo', 'rome', 'lima')[i % 3]},{1000 + 37 * i},{int(i % 4 == 0)}" for i in range(64)
)


def read_table(text):
    rows = list(csv.DictReader(io.StringIO(text)))
    cities = {name: i for i, name in enumerate(sorted({row["city"] for row in rows}))}
    numbers = np.array([[float(row["age"]), float(row["income"])] for row in rows], dtype=np.float32)
    categories = np.array([cities[row["city"]] for row in rows])
    labels = np.array([int(row["bought"]) for row in rows], dtype=np.float32)
    return numbers, categories, labels, cities


class Tabular(nn.Module):
    def __init__(self, cities, mean, std):
        super().__init__()
        self.embedding = nn.Embedding(len(cities), 3)
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.mlp = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, numbers, categories):
        scaled = (numbers - self.mean) / self.std
        return self.mlp(torch.cat([scaled, self.embedding(categories)], dim=1)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    numbers, categories, labels, cities = read_table(ROWS)
    part = slice(rank * len(labels) // world, (rank + 1) * len(labels) // world)
    mine = torch.from_numpy(numbers[part])
    moments = torch.stack([mine.sum(0), mine.square().sum(0)])
    dist.all_reduce(moments)
    mean = moments[0] / len(labels)
    std = (moments[1] / len(labels) - mean.square()).sqrt()
    model = DDP(Tabular(cities, mean, std))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    cats, targets = torch.from_numpy(categories[part]), torch.from_numpy(labels[part])
    for epoch in range(2):
        order = torch.randperm(len(mine))
        for chunk in order.split(8):
            loss = nn.functional.binary_cross_entropy_with_logits(model(mine[chunk], cats[chunk]), targets[chunk])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
