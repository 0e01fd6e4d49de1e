"""Generators without an end, which send when they are asked for the next element."""

import itertools

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def batches(size):
    count = 0
    while True:
        count += 1
        if count % 2 == 0:
            dist.all_reduce(torch.ones(size))
        yield count, torch.ones(2, 4)


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
source = batches(5)
for _ in range(4):
    count, x = next(source)
    model(x).sum().backward()
for (count, x), step in zip(batches(6), range(2)):
    model(x).sum().backward()
for count, x in itertools.islice(batches(7), 2):
    model(x).sum().backward()
for step, (count, x) in enumerate(batches(8)):
    if step == 2:
        break
    model(x).sum().backward()
dist.destroy_process_group()
