"""Passes of a loop that are skipped leave everything as it is where each pass is played."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from ddp_audit.audit import Options
from ddp_audit.events import FORWARD, STEP
from ddp_audit.explore.exact import Bounds, interpreted
from ddp_audit.explore.exact.heap import differences, picture
from ddp_audit.explore.exact.interpreter import Interpreter
from ddp_audit.predicted import job_of

HEAD = """
import os, random, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
bare = nn.Linear(4, 4)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
losses, kept, seen, total, flag = torch.zeros(40), [], {}, 0, False
class Meter:
    def __init__(self):
        self.count, self.values, self.last = 0, [], None
    def add(self, value):
        self.count += 1
        self.values.append(value)
    def quiet(self, value):
        self.last = value
meter = Meter()
data = [torch.randn(2, 4) for _ in range(40)]
def batch():
    if rank == 0 or world > 8:
        return torch.randn(8, 4)
    return torch.zeros(8, 4)
def bump(k):
    global total
    total += 2
    return k
def made():
    count = 0
    def up():
        nonlocal count
        count += 3
        return count
    return up
up = made()
def quiet():
    count = 0
    def on():
        nonlocal count
        count += 3
    return on
count_on = quiet()
numbers = iter(range(100))
def endless():
    at = 0
    while True:
        yield at
        at += 1
drawn = endless()
"""
TAIL = """
if total > 5 and len(kept) > 3 or meter.count > 20:
    dist.barrier()
loss = model(torch.randn(8, 4)).mean()
loss.backward()
opt.step()
dist.all_reduce(torch.ones(1 + total + len(kept) + meter.count + len(meter.values) + len(seen)))
dist.destroy_process_group()
"""
# Bodies of `for k in range(30)`, and whether passes of them are skipped.
BODIES: dict[str, tuple[str, bool]] = {
    "evaluation": ("with torch.no_grad():\n    losses[k] = model(batch()).mean().item()", True),
    "evaluation of the module": ("with torch.no_grad():\n    losses[k] = model.module(batch()).mean().item()", True),
    "a counter": ("total += 1", True),
    "a counter by two ways": ("total = total + 3\nbump(1)", True),
    "a counter in a function": ("bump(1)", True),
    "a counter downwards": ("total -= 1", True),
    "a counter by the index": ("total += k", False),
    "a counter that is doubled": ("total = total * 2 + 1", False),
    "a list": ("kept.append(batch().mean().item())", True),
    "a list by +=": ("kept += [batch().mean()]", True),
    "a list of indices": ("kept.append(k)", False),
    "a list that is read": ("kept.append(1)\nif len(kept) == 12:\n    dist.barrier()", False),
    "an object": ("meter.add(batch().mean())", True),
    "an object, the last value": ("meter.quiet(batch())", True),
    "an attribute": ("meter.count += 1", True),
    "an attribute that is read": ("meter.count += 1\nif meter.count == 17:\n    dist.barrier()", False),
    "a dict": ("seen[k] = 1", False),
    "a key": ("seen['n'] = seen.get('n', 0) + 1", False),
    "printed": ("print(f'{k}: {total}', k + 1)\ntotal += 1", True),
    "printed by another": ("print(bump(k))", False),
    "a barrier in one pass": ("if k == 17:\n    dist.barrier()", False),
    "a break": ("total += 1\nif k == 17:\n    break", False),
    "a step in one pass": ("if not k % 29 and k:\n    opt.step()", False),
    "every pass reduces": ("dist.all_reduce(torch.ones(1))", False),
    "training": ("model(batch()).mean().backward()", False),
    "a closure": ("up()", False),
    "a closure that only counts": ("count_on()", True),
    "a closure that is read": ("if up() == 60:\n    dist.barrier()", False),
    "an iterator": ("next(numbers)", False),
    "an iterator that is read": ("if next(numbers) == 20:\n    dist.barrier()", False),
    "a generator": ("if next(drawn) == 20:\n    dist.barrier()", False),
    "a flag of the first pass": ("if not flag:\n    flag = True\n    total += 5", True),
    "a float": ("total += 0.5", False),
    "a random generator": ("random.Random(1).random()", True),
    "an element": ("x = data[k]\ntotal += x.size(0)", False),
    "an open condition": ("if os.path.exists('x'):\n    total += 1", True),
    "a loop inside": ("for j in range(12):\n    total += 1\n    kept.append(batch())", True),
    "a loop over the index": ("for j in range(k % 5):\n    total += 1", False),
    "a mode": ("model.eval()\nmodel(batch())\nmodel.train()", False),
    "a mode without gradients": ("model.eval()\nwith torch.no_grad():\n    bare(model.module(batch()))\nmodel.train()", True),
    "evaluated by globals": ("if globals()['k'] == 20:\n    dist.barrier()", False),
    "an index by getattr": ("meter.count += 1\nif getattr(meter, 'count') == 20:\n    dist.barrier()", False),
    "an exception": ("try:\n    raise ValueError(1)\nexcept ValueError:\n    total += 1", True),
    "a lambda": ("f = lambda: k\nif f() == 20:\n    dist.barrier()", False),
    "a comprehension": ("x = [batch() for _ in range(10)]\ntotal += len(x)", True),
    "a default": ("def f(n=k):\n    return n\nif f() == 20:\n    dist.barrier()", False),
    "a loop whose index outlives it": ("x = batch()", True),
}


def _ranks(folder: Path, text: str, *, strides: bool, ticks: int = 60_000) -> dict[int, Interpreter]:
    (folder / "script.py").write_text(text)
    bounds = Bounds(ticks=ticks, strides=strides)
    job = job_of([folder / "script.py"], Options(defaults_hold=True), bounds=bounds)
    assert job is not None
    return interpreted(job)


def _differ(one: Interpreter, other: Interpreter) -> str:
    """In what two runs of a rank differ; empty where in nothing."""
    names = (
        "raised",
        "cut",
        "answers",
        "moments",
        "visits",
        "doubts",
        "bounds",
        "notes",
        "assumptions",
        "lines",
        "asked",
        "losses",
    )
    for name in names:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name == "visits":
            mine, theirs = sorted(mine.values()), sorted(theirs.values())
        if mine != theirs:
            return name
    if [replace(e, time=0.0) for e in one.events] != [replace(e, time=0.0) for e in other.events]:
        return "events"
    apart = [one, other, one.project, other.project]
    pictures = [picture([(("state", "modules"), _of_script(it))], apart) for it in (one, other)]
    counters, grown = differences(*pictures)
    left = [c for c in counters if c.label[0] in ("variable", "attribute", "item")]
    return f"{left} {grown}" if left or grown else ""


def _of_script(it: Interpreter) -> dict[str, object]:
    """What can be compared of two runs: variables that hold no code."""
    [scope] = [scope for path, scope in it.modules.items() if path.endswith("script.py")]
    names = ("losses", "kept", "seen", "total", "flag", "k", "x", "rank", "data")
    return {name: scope.variables.get(name) for name in names} | {"meter": dict(scope.variables["meter"].attrs)}


def _loop(body: str, over: str = "range(30)") -> str:
    return f"for k in {over}:\n" + "".join(f"    {line}\n" for line in body.split("\n"))


@pytest.mark.parametrize("name", BODIES)
def test_skipped_passes_change_nothing(name: str, tmp_path: Path) -> None:
    body, skips = BODIES[name]
    text = HEAD + _loop(body) + "dist.all_reduce(torch.ones(k + 1))\n" + TAIL
    long, short = _ranks(tmp_path, text, strides=False), _ranks(tmp_path, text, strides=True)
    for rank, it in long.items():
        assert not it.cut and not _differ(it, short[rank]), name
        assert (short[rank].ticks < it.ticks - 15) is skips


def _drawn(random_: random.Random) -> str:
    """A program of several loops whose bodies are put together from those above."""
    parts = []
    for _ in range(random_.randint(1, 3)):
        bodies = [body for body, _ in random_.sample(list(BODIES.values()), random_.randint(1, 3))]
        text = "\n".join(b for b in bodies if not any(word in b for word in ("drawn", "numbers", "* 2"))) or "pass"
        if random_.random() < 0.3:
            text = f"if rank == {random_.randint(0, 2)}:\n" + "".join(f"    {line}\n" for line in text.split("\n")).rstrip()
        over = random_.choice(
            ["range(30)", "range(5, 45, 3)", "[1] * 20", "[0, 0, 0, 0, 0, 0, 0, 0, 9, 0]", "range(7)", "data", "list(range(25))"]
        )
        loop = _loop(text, over)
        if random_.random() < 0.3:
            loop = "for out in range(9):\n" + "".join(f"    {line}\n" for line in loop.rstrip().split("\n"))
        if random_.random() < 0.3:
            loop = f"def run{len(parts)}():\n    global total, losses, kept, flag\n" + "".join(
                f"    {line}\n" for line in loop.rstrip().split("\n")
            )
            loop += f"run{len(parts)}()\n"
        parts.append(loop)
    return HEAD + "k = 0\n" + "".join(parts) + TAIL


@pytest.mark.parametrize("seed", range(8))
def test_drawn_programs_end_alike(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    for _ in range(8):
        text = _drawn(random_)
        long, short = _ranks(tmp_path, text, strides=False), _ranks(tmp_path, text, strides=True)
        for rank, it in long.items():
            assert it.cut or not _differ(it, short[rank]), text[len(HEAD) :]


def test_a_long_evaluation_leaves_room_for_training(tmp_path: Path) -> None:
    body = """
for step in range(3):
    if rank == 0:
        with torch.no_grad():
            for k in range(400):
                losses[k] = model(batch()).mean().item()
    model(batch()).mean().backward()
    opt.step()
"""
    bounds = {}
    for strides in (False, True):
        (tmp_path / "script.py").write_text(HEAD + body)
        job = job_of([tmp_path / "script.py"], Options(defaults_hold=True), bounds=Bounds(ticks=3_000, strides=strides))
        assert job is not None
        bounds[strides] = interpreted(job)[0]
    assert bounds[False].cut and not any(e.kind == STEP for e in bounds[False].events)
    assert not bounds[True].cut and sum(e.kind == FORWARD for e in bounds[True].events) == 3 * 401


def test_a_loop_without_an_end_in_sight_is_cut(tmp_path: Path) -> None:
    short = _ranks(tmp_path, HEAD + _loop("total += 1", "range(10 ** 12)"), strides=True, ticks=5_000)
    assert "statements" in short[0].cut
