"""The order in which a program sends, as the interpreted run follows it: each body is held to what CPython does."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_interpreted_programs import predicted

SEND = "def send(n):\n    dist.all_reduce(torch.ones(n))\n"
BODIES = {
    "a return in finally": "def f():\n    try:\n        return 1\n    finally:\n        send(2)\n        return 3\nsend(f())\n",
    "continue through finally": """
for n in range(3):
    try:
        if n == 1:
            continue
        send(n + 1)
    finally:
        send(10 + n)
else:
    send(7)
""",
    "break leaves out else": "for n in range(5):\n    if n == 2:\n        break\n    send(n + 1)\nelse:\n    send(9)\nsend(n)\n",
    "while with else": "n = 3\nwhile n:\n    send(n)\n    n -= 1\nelse:\n    send(8)\n",
    "while with break": "n = 3\nwhile True:\n    send(n)\n    n -= 1\n    if n < 2:\n        break\nelse:\n    send(8)\n",
    "exceptions by kind": """
for kind in (ValueError, KeyError, ZeroDivisionError):
    try:
        raise kind("x")
    except (KeyError, IndexError):
        send(2)
    except ValueError:
        send(3)
    except Exception:
        send(4)
    else:
        send(5)
    finally:
        send(6)
""",
    "an exception that passes a function": """
def f():
    send(1)
    raise RuntimeError("x")
    send(2)
try:
    f()
except RuntimeError as error:
    send(3 + len(str(error)))
""",
    "nested functions and state": """
def counter():
    count = 0
    def step():
        nonlocal count
        count += 2
        return count
    return step
step = counter()
send(step())
send(step())
""",
    "classes": """
class Base:
    size = 2
    def __init__(self, more):
        self.more = more
    def total(self):
        return self.size + self.more
class Child(Base):
    size = 5
    @property
    def double(self):
        return 2 * super().total()
    @staticmethod
    def one():
        return 1
    @classmethod
    def made(cls, n):
        return cls(n)
send(Base(1).total())
send(Child.made(3).double)
send(Child.one())
""",
    "a context manager": """
class Guard:
    def __enter__(self):
        send(1)
        return 4
    def __exit__(self, kind, error, trace):
        send(2 if kind is None else 3)
        return kind is ValueError
with Guard() as n:
    send(n)
with Guard():
    raise ValueError
send(6)
""",
    "a generator": """
def numbers():
    send(1)
    got = yield 5
    send(2)
    yield 6
for n in numbers():
    send(n)
""",
    "match": """
for value in (1, [1, 2], {"a": 3}, "x", (4, 5, 6)):
    match value:
        case 1:
            send(1)
        case [a, b]:
            send(a + b)
        case {"a": n} if n > 5:
            send(90)
        case {"a": n}:
            send(n + 10)
        case str():
            send(20)
        case [first, *rest]:
            send(first + len(rest))
""",
    "unpacking and swaps": "a, (b, *c) = 1, (2, 3, 4)\na, b = b, a\nsend(a)\nsend(b + len(c))\nx = y = [1]\nx.append(5)\nsend(len(y))\n",
    "defaults that live on": "def f(n, seen=[]):\n    seen.append(n)\n    return len(seen)\nf(1)\nsend(f(1))\n",
    "keyword arguments": "def f(a, b=2, *, c=3, **more):\n    return a + 10 * b + 100 * c + len(more)\nsend(f(1))\nsend(f(1, c=5, d=6))\nsend(f(b=1, a=2))\n",
    "deleting": "d = {'a': 1, 'b': 2}\ndel d['a']\nsend(len(d))\ns = [1, 2, 3, 4]\ndel s[1:3]\nsend(sum(s))\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_program_sends_in_the_order_in_which_it_runs(body: str, tmp_path: Path) -> None:
    expected: list[int] = []
    exec(body, {"send": expected.append})
    assert expected
    run = predicted(tmp_path, SEND + body)
    assert ([event.numel for event in run.collectives(0)], run.why) == (expected, "")


@pytest.mark.parametrize("every", [2, 31, 32])
def test_a_loop_of_unknown_length_runs_until_it_repeats_itself(every: int, tmp_path: Path) -> None:
    body = f"step = 0\nfor line in open(os.environ['F']):\n    step += 1\n    if step % {every} == 0:\n        dist.barrier()\n"
    assert predicted(tmp_path, body).collectives(0)
