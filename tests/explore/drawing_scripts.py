"""Draws random training scripts: nested modules with cells, several wrappers, sub-groups, join, free orders of use.

Each runs to its end or stops in the same way on every run; the ranks of a group do the same, except under join.
"""

from __future__ import annotations

import random
from collections.abc import Callable

HEAD = """import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()


class Recurrent(nn.Module):
    def __init__(self, kind, width, times):
        super().__init__()
        self.kind, self.times, self.cell = kind, times, getattr(nn, kind)(width, width)

    def forward(self, x):
        h = c = torch.zeros(2, x.shape[1])
        for _ in range(self.times):
            if self.kind == "LSTMCell":
                h, c = self.cell(x, (h, c))
            else:
                h = self.cell(x, h)
        return h


class Residual(nn.Module):
    def __init__(self, inner, width):
        super().__init__()
        self.norm, self.inner, self.scale = nn.LayerNorm(width), inner, nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x + self.inner(self.norm(x)) * self.scale


class Net(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x, order):
        heads = []
        for number in order:
            x = self.parts[number](x)
            heads.append(x.sum())
        total = heads[0]
        for head in heads[1:]:
            total = total + head
        return total, x
"""


def draw_script(choose: random.Random) -> tuple[int, str]:
    """A number of ranks and a script."""
    world_size = choose.choice([2, 2, 3, 3, 4])
    width = choose.choice([4, 6, 16])
    lines: list[str] = []
    wrappers: list[tuple[str, int, str, list[int]]] = []  # name, parts, its options, the ranks of its group
    groups: list[tuple[str, list[int]]] = [("", list(range(world_size)))]
    for number in range(choose.choice([0, 0, 1, 2]) if world_size > 2 else choose.choice([0, 1])):
        members = sorted(choose.sample(range(world_size), choose.randint(1, world_size)))
        lines.append(f"group{number} = dist.new_group({members})")
        groups.append((f"group{number}", members))
    for number in range(choose.choice([1, 1, 2])):
        parts = [_part(choose, width) for _ in range(choose.randint(1, 4))]
        group, members = choose.choice(groups)
        options = _options(choose) + (f", process_group={group}" if group else "")
        lines += _only(members, world_size, [f"model{number} = DDP(Net([{', '.join(parts)}]){options}, bucket_cap_mb=CAP)"])
        wrappers.append((f"model{number}", len(parts), options, members))
    lines = [line.replace("CAP", str(choose.choice([25, 0.0001, 0.0005, 0.002]))) for line in lines]
    lines.append(f"x = torch.ones(2, {width})")
    body: list[Callable[[], list[str]]] = [lambda: _step(choose, wrappers, world_size) for _ in range(choose.randint(2, 4))]
    if choose.random() < 0.4:
        body.append(lambda: _join(choose, wrappers, world_size))
    body.append(lambda: _collective(choose, groups, world_size))
    choose.shuffle(body)
    for make in body:
        lines += make()
    return world_size, HEAD + "\n\n" + "\n".join(lines) + "\ndist.barrier()\n"


def _part(choose: random.Random, width: int, depth: int = 0) -> str:
    kinds = ["linear", "cell", "batch-norm", "attention", "sequence", "residual"]
    match choose.choice(kinds if depth < 2 else kinds[:2]):
        case "cell":
            kind = choose.choice(["LSTMCell", "GRUCell", "RNNCell"])
            return f'Recurrent("{kind}", {width}, {choose.randint(1, 3)})'
        case "batch-norm":
            return f"nn.BatchNorm1d({width})"
        case "attention":
            first = choose.choice(["", ", norm_first=True", ", bias=False"])
            return f"nn.TransformerEncoderLayer({width}, 2, {choose.choice([8, 40])}{first})"
        case "sequence":
            return f"nn.Sequential({_part(choose, width, depth + 1)}, nn.ReLU(), {_part(choose, width, depth + 1)})"
        case "residual":
            return f"Residual({_part(choose, width, depth + 1)}, {width})"
    return f"nn.Linear({width}, {width}{choose.choice(['', ', bias=False'])})"


def _options(choose: random.Random) -> str:
    kind = choose.choice(["", "", ", find_unused_parameters=True"])
    return kind + choose.choice(["", "", ", broadcast_buffers=False", ", gradient_as_bucket_view=True"])


def _only(members: list[int], world_size: int, lines: list[str]) -> list[str]:
    if len(members) == world_size:
        return lines
    return [f"if rank in {members}:", *(f"    {line}" for line in lines)]


def _order(choose: random.Random, parts: int) -> list[int]:
    """All parts in some order, some of them again."""
    order = choose.sample(range(parts), parts)
    return order + [choose.randrange(parts) for _ in range(choose.choice([0, 0, 1, 2]))]


def _step(choose: random.Random, wrappers: list[tuple[str, int, str, list[int]]], world_size: int) -> list[str]:
    """One backward, of one wrapper or of several whose ranks are the same."""
    name, parts, _, members = choose.choice(wrappers)
    others = [w for w in wrappers if w[3] == members and w[0] != name]
    if others and choose.random() < 0.6:
        other, count, _, _ = others[0]
        second = choose.choice([f"{other}(x, {_order(choose, count)})[0]", f"{other}(first[1], {_order(choose, count)})[0]"])
        lines = [f"first = {name}(x, {_order(choose, parts)})", f"(first[0] + {second}).backward()"]
    elif choose.random() < 0.3:
        lines = [
            f"first, second = {name}(x, {_order(choose, parts)})[0], {name}(x, {_order(choose, parts)})[0]",
            choose.choice(["first.backward()", "second.backward()", "(first + second).backward()"]),
        ]
    elif choose.random() < 0.3:
        lines = [f"with {name}.no_sync():", f"    {name}(x, {_order(choose, parts)})[0].backward()"]
    else:
        which = choose.choice(["[0]", "[0]", "[1].sum()"])
        lines = [f"{name}(x, {_order(choose, parts)}){which}.backward()"]
    return _only(members, world_size, lines)


def _join(choose: random.Random, wrappers: list[tuple[str, int, str, list[int]]], world_size: int) -> list[str]:
    name, parts, _, members = choose.choice(wrappers)
    lengths = {rank: choose.randint(0, 3) for rank in members}
    lines = [
        f"with {name}.join({choose.choice(['', 'divide_by_initial_world_size=False'])}):",
        f"    for _ in range({lengths}[rank]):",
        f"        {name}(x, {_order(choose, parts)})[0].backward()",
    ]
    return _only(members, world_size, lines)


def _collective(choose: random.Random, groups: list[tuple[str, list[int]]], world_size: int) -> list[str]:
    group, members = choose.choice(groups)
    where = f", group={group}" if group else ""
    call = choose.choice(
        [
            f"dist.all_reduce(torch.zeros({choose.randint(1, 9)}){where})",
            f"dist.broadcast(torch.zeros(3), {choose.choice(members)}{where})",
            f"dist.all_gather([torch.zeros(2) for _ in range({len(members)})], torch.zeros(2){where})",
            f"dist.all_reduce(torch.zeros(4), async_op=True{where}).wait()",
        ]
    )
    return _only(members, world_size, [call])
