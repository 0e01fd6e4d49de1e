"""Python as programs use it, followed by the interpreted run: what each program sends is what CPython makes it send.

A program calls `send` with numbers from 1 on; CPython runs it here, and in the prediction each is the size of one reduction.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from python_class_programs import CLASSES, FUNCTIONS
from python_container_programs import CONTAINERS, MATCHES, NUMBERS, TEXTS
from python_error_programs import ERRORS_AND_PROTOCOLS, EXCEPTIONS
from test_interpreted_programs import predicted

SEND = "def send(n):\n    dist.all_reduce(torch.ones(n))\n"

NAMES_AND_SCOPES = {
    "an assignment in a condition": "while (n := len('abc')) and n > 9:\n    send(9)\nif (m := n + 1) == 4:\n    send(m)\nsend(n)\n",
    "globals that a function sets": "count = 1\ndef more():\n    global count\n    count += 2\nmore()\nmore()\nsend(count)\n",
    "a name of two levels further out": """
def outer():
    n = 1
    def middle():
        def inner():
            nonlocal n
            n += 4
            return n
        return inner
    middle()()
    return n
send(outer())
""",
    "a name that a class body does not give its methods": """
size = 3
class A:
    size = 5
    def get(self):
        return size
    def own(self):
        return self.size
send(A().get())
send(A().own())
""",
    "deleted names and items": """
d = {"a": 1, "b": 2}
del d["a"]
send(len(d))
try:
    del d["a"]
except KeyError:
    send(6)
rows = [1, 2, 3]
del rows[0], rows[-1]
send(rows[0])
class A: pass
a = A()
a.x = 3
del a.x
send(1 + hasattr(a, "x"))
""",
    "unpacking": """
(a, b), *c, d = [(1, 2), 3, 4, 5]
send(a + b)
send(len(c) + d)
*e, f = "xyz"
send(len(e) + len(f))
for i, (j, k) in enumerate([(1, 2), (3, 4)]):
    send(1 + i + j * k)
x, y = {"p": 1, "qq": 2}
send(len(x + y))
a = b = 5
a += 1
send(a * b)
""",
    "a loop's name after the loop": "for n in range(4):\n    pass\nsend(n)\nsquares = [n * n for n in range(7)]\nsend(n)\nsend(len(squares))\n",
    "augmented assignments": """
n = 7
n -= 2; send(n)
n *= 3; send(n)
n //= 2; send(n)
n %= 4; send(n)
n **= 3; send(n)
n <<= 1; send(n)
n >>= 2; send(n)
n |= 3; send(n)
n &= 6; send(n)
n ^= 5; send(n)
rows = [[1], [2]]
rows[0] += [3]
rows[1] *= 3
send(len(rows[0]) + 10 * len(rows[1]))
class A: n = 1
A.n += 4
a = A()
a.n += 2
send(a.n + 10 * A.n)
""",
}


FILES_AND_STATE = {
    "enumerations": """
import enum
class Mode(enum.Enum):
    TRAIN = "train"
    EVAL = "eval"
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5
class Auto(enum.Enum):
    A = enum.auto()
    B = enum.auto()
    def next(self):
        return Auto.B if self is Auto.A else Auto.A
send(len(Mode.TRAIN.value) + len(Mode.EVAL.name) + len(list(Mode)))
send(Level.HIGH + Level.LOW)
send(Auto.A.next().value + Auto.B.next().value * 10)
send(1 + (Mode("eval") is Mode.EVAL) + 2 * (Mode.TRAIN == "train"))
try:
    Mode("none")
except ValueError:
    send(7)
send(sum(m.value for m in Auto))
send({Mode.TRAIN: 4, Mode.EVAL: 5}[Mode.EVAL])
""",
    "copies": """
import copy
from collections import defaultdict
from types import SimpleNamespace
class Box:
    def __init__(self):
        self.items = [1]
        self.me = self
box = Box()
shallow, deep = copy.copy(box), copy.deepcopy(box)
box.items.append(2)
send(len(shallow.items) * 10 + len(deep.items) + (deep.me is deep) + (shallow.me is box))
rows = [[1], (2, [3]), {4}, {"a": [5]}]
deep = copy.deepcopy(rows)
rows[0].append(1); rows[1][1].append(1); rows[2].add(9); rows[3]["a"].append(1)
send(len(deep[0]) + len(deep[1][1]) * 10 + len(deep[2]) * 100 + len(deep[3]["a"]) * 1000)
flat = copy.copy(rows)
flat.append(1)
send(len(rows))
d = copy.deepcopy(defaultdict(list, {"a": [1]}))
d["b"].append(2)
send(len(d) + len(d["a"]))
s = SimpleNamespace(n=3, rows=[1])
t, u = copy.copy(s), copy.deepcopy(s)
s.n = 9
s.rows.append(2)
send(t.n * 10 + u.n + len(t.rows) * 100 + len(u.rows))
""",
    "namespaces": """
from types import SimpleNamespace
import argparse
a = SimpleNamespace(x=1, y=SimpleNamespace(z=2))
a.x += 4
a.w = 7
send(a.x + a.y.z + len(vars(a)))
b = argparse.Namespace(lr=3, **{"n": 4})
send(b.lr + b.n + getattr(b, "gone", 5))
""",
    "options with their defaults": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=4)
parser.add_argument("--on", action="store_true")
parser.add_argument("--off", action="store_false")
parser.add_argument("--name", "-m", default="abc")
parser.add_argument("--many-words", type=int, default=6)
parser.add_argument("--dest", dest="other", type=int, default=8)
group = parser.add_argument_group("more")
group.add_argument("--in-group", type=int, default=9)
parser.set_defaults(set_later=11)
args = parser.parse_args([])
send(args.n + len(args.name))
send(1 + args.on + 2 * args.off)
send(args.many_words + args.other + args.in_group + args.set_later)
known, rest = parser.parse_known_args([])
send(known.n + len(rest))
send(vars(args)["n"])
""",
}


PROGRAMS = (
    NAMES_AND_SCOPES
    | EXCEPTIONS
    | CLASSES
    | FUNCTIONS
    | CONTAINERS
    | TEXTS
    | NUMBERS
    | MATCHES
    | FILES_AND_STATE
    | ERRORS_AND_PROTOCOLS
)


@pytest.mark.parametrize("body", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_sends_what_python_makes_it_send(body: str, tmp_path: Path) -> None:
    expected: list[int] = []
    exec(compile(body, "program", "exec", dont_inherit=True), {"send": expected.append, "__name__": __name__})
    assert expected
    run = predicted(tmp_path, SEND + body)
    assert ([event.numel for event in run.collectives(0)], run.why) == (expected, "")
