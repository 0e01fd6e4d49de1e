"""Generators that are resumed in several places, with finally blocks; hooks of the wrapper itself."""

import itertools

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def numbers(n):
    try:
        for i in range(n):
            got = yield i
            dist.all_reduce(torch.ones(10 + i))
    finally:
        dist.all_reduce(torch.ones(99))


def nested(n):
    yield from numbers(n)
    yield 100


class Loader:
    def __iter__(self):
        for i in range(3):
            dist.all_reduce(torch.ones(30 + i))
            yield torch.ones(2, 4)


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
gen = nested(2)
first = next(gen)
rest = list(gen)
if rest == [1, 100] and next(gen, None) is None:
    dist.all_reduce(torch.ones(5))
it = iter(Loader())
for step in range(4):
    try:
        x = next(it)
    except StopIteration:
        it = iter(Loader())
        x = next(it)
    model(x).sum().backward()
g = numbers(5)
for i in g:
    if i == 1:
        break
i = next(g)
if i == 2:
    dist.all_reduce(torch.ones(7))
rest = list(g)
model.register_forward_pre_hook(lambda m, a: dist.all_reduce(torch.ones(50)))
h = model.register_forward_hook(lambda m, a, out: dist.all_reduce(torch.ones(51)))
model(torch.ones(2, 4)).sum().backward()
h.remove()
model(torch.ones(2, 4)).sum().backward()
for g2 in [numbers(3)]:
    a, b, c = g2
    if a + b + c == 3:
        dist.all_reduce(torch.ones(8))
for i, v in zip(range(5), itertools.cycle(numbers(2))):
    pass
dist.destroy_process_group()
