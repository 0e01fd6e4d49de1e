# ends: completes
"""Several tasks in turn until the shortest loader is empty: zip, cycle, namedtuple, sorted by key."""

from collections import namedtuple
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

Task = namedtuple("Task", "name loader weight")


def make_task(name, size, weight=1.0):
    data = TensorDataset(torch.randn(size, 3))
    return Task(name, DataLoader(data, batch_size=4, sampler=DistributedSampler(data)), weight)


class MultiHead(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.trunk = nn.Linear(3, 3)
        self.heads = nn.ModuleDict({name: nn.Linear(3, 1) for name in names})

    def forward(self, inputs):
        return {name: self.heads[name](torch.tanh(self.trunk(x))) for name, x in inputs.items()}


def main():
    dist.init_process_group("gloo")
    tasks = sorted([make_task("depth", 30, 0.5), make_task("normal", 14), make_task("edges", 22)], key=lambda t: len(t.loader))
    model = DDP(MultiHead([t.name for t in tasks]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    longest = tasks[-1].loader
    others = [cycle(t.loader) for t in tasks[:-1]]
    for batches in zip(*others, longest):
        outputs = model({t.name: batch[0] for t, batch in zip(tasks, batches)})
        loss = sum(t.weight * outputs[t.name].mean() for t in tasks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
