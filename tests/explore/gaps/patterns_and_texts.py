"""Class patterns with __match_args__, nested sequences, formats; groups that are added and changed."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


class P:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __format__(self, spec):
        return f"{self.x:{spec or 'd'}}"


class Q(P):
    def __repr__(self):
        return f"Q({self.x}, {self.y})"


def f(v):
    match v:
        case P(0, y):
            return 10 + y
        case Q(x, 1) as q if q.x > 2:
            return 20 + x
        case {"a": [1, *_], "b": str() as s}:
            return 30 + len(s)
        case [[a, b], *rest, (c, 4)]:
            return 40 + a + b + c + len(rest)
        case "x" | "y":
            return 51
        case int() | float():
            return 52
        case [] | {}:
            return 53
    return 54


dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 4))
model(torch.ones(2, 4)).sum().backward()
for v in [
    P(0, 2),
    Q(3, 1),
    Q(1, 1),
    {"a": [1, 2], "b": "cd", "z": 0},
    {"a": [2], "b": "c"},
    [(1, 2), 9, 9, (3, 4)],
    [[1, 2], [1, 3]],
    "y",
    "z",
    3,
    2.5,
    [],
    {},
    {"k": 1},
]:
    dist.all_reduce(torch.ones(f(v)))
q = Q(3, 1)
if f"{q!r:>8}" == " Q(3, 1)" and f"{q}" == "3" and f"{q:03d}" == "003" and repr(q) == "Q(3, 1)" and str(q) == "Q(3, 1)":
    dist.all_reduce(torch.ones(5))
opt = torch.optim.Adam(model.parameters(), betas=(0.8, 0.9), lr=1e-2)
opt.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))], "lr": 0.3})
if opt.param_groups[1]["betas"] == (0.8, 0.9) and opt.param_groups[-1]["lr"] == 0.3:
    dist.all_reduce(torch.ones(6))
for g in opt.param_groups:
    g["lr"] *= 0.5
if opt.param_groups[0]["lr"] == 0.005:
    dist.all_reduce(torch.ones(7))
opt.step()
dist.destroy_process_group()
