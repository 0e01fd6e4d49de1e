"""Values of Python's own that a predicted run computes: each program counts to a number as CPython does, with nothing assumed.

A program is plain Python that sets `n`; CPython runs it here, and in the prediction each of n barriers is one more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.explore.exact import predict
from ddp_audit.explore.proof import CHECKED
from ddp_audit.outcome import Options
from ddp_audit.predicted import job_of

PROGRAMS = {
    "a dataclass replaced": """
from dataclasses import asdict, dataclass, field, replace
@dataclass
class A:
    x: int = 1
    y: list = field(default_factory=lambda: [1, 2])
    z: int = field(init=False, default=7)
@dataclass
class B(A):
    x: int = 5
    w: str = "q"
    def __post_init__(self):
        self.double = 2 * self.x
b = replace(B(x=2), w="r")
n = b.x + len(b.y) + b.z + b.double + asdict(b)["x"]
""",
    "heaps and sorted lists": """
import bisect, heapq
h = []
for x in (5, 1, 4):
    heapq.heappush(h, x)
n = heapq.heappop(h) * 10 + len(h)
heapq.heapreplace(h, 7)
heapq.heapify(h)
a = [2, 9]
bisect.insort(a, 5)
bisect.insort_left(a, x=1)
n += a.index(5) + len(a) + h[0]
""",
    "named tuples": """
from collections import namedtuple
from typing import NamedTuple
class S(NamedTuple):
    a: int
    b: int = 3
    def total(self):
        return self.a + self.b
P = namedtuple("P", "u v", defaults=[4])
u, v = P(1)
n = S(1).total() + S(1)._replace(a=2).a + u + v + len(P(1, 2)) + P(3)._asdict()["v"] + S(b=1, a=2)[0]
""",
    "a class that a decorator registers": """
KINDS = {}
def register(name):
    def add(cls):
        KINDS[name] = cls
        return cls
    return add
@register("five")
class Five:
    def count(self):
        return 5
n = KINDS["five"]().count() + Five().count()
""",
    "functions in a list": """
steps = []
steps.append(lambda x: x + 1)
steps.append(lambda x: x * 2)
steps.insert(0, abs)
n = -3
for step in steps:
    n = step(n)
""",
    "an exit stack": """
import contextlib
log = []
class C:
    def __init__(self, name):
        self.name = name
    def __enter__(self):
        log.append(1)
        return self
    def __exit__(self, *details):
        log.append(len(self.name))
@contextlib.contextmanager
def made():
    log.append(1)
    yield 3
    log.append(1)
with contextlib.ExitStack() as stack:
    first = stack.enter_context(C("ab"))
    log.append(stack.enter_context(made()))
n = sum(log)
""",
    "a generator that is sent values": """
def running():
    total = 0
    while True:
        given = yield total
        total += given or 0
g = running()
next(g)
g.send(3)
n = g.send(4)
g.close()
""",
    "a deque": """
from collections import deque
d = deque([1, 2, 3], maxlen=3)
d.append(4)
d.appendleft(9)
d.rotate(1)
e = deque()
e.extend([5, 6, 7])
n = d[0] + len(d) + e.popleft() + e.pop() + d.maxlen
""",
    "a counter": """
from collections import Counter
c = Counter("abracadabra")
n = c["a"] + c["z"] + sum(c.values()) + len(max(c, key=c.get))
""",
    "the greatest by a key": """
words = ["aa", "b", "cccc", "dd"]
n = len(max(words, key=len)) + len(min(words, key=len)) + max([], default=2) + max(3, 1)
words.sort(key=lambda w: (-len(w), w))
n += len(words[0]) + words.index("b")
""",
    "itertools": """
import itertools
from functools import partial, reduce
n = reduce(lambda a, b: a + b, itertools.accumulate([1, 2, 3]))
n += len(list(itertools.chain.from_iterable([[1, 2], [3]])))
n += sum(a * b for a, b in itertools.zip_longest([1, 2], [3], fillvalue=1))
n += sum(itertools.islice(itertools.repeat(2), 3)) + sum(b - a for a, b in itertools.pairwise([1, 4, 6]))
n += len(list(itertools.combinations(range(4), 2))) + sum(itertools.takewhile(lambda x: x < 3, [1, 2, 3, 1]))
n += sum(len(list(group)) * key for key, group in itertools.groupby([1, 1, 2]))
n += sum(itertools.starmap(pow, [(2, 2), (3, 1)]))
""",
    "classes that are dicts": """
class Config(dict):
    def __getattr__(self, name):
        value = self[name]
        return Config(value) if isinstance(value, dict) else value
class Plain(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self
class Dotted(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
a = Config({"model": {"depth": 3}, "n": 2})
b = Plain(x=4)
b.y = 1
c = Dotted(z=2)
c.w = 5
n = a.model.depth + a.n + len(a) + b.x + b["y"] + c.z + c["w"] + (0 if c.missing is None else 9)
""",
    "texts that hold values": """
import json
config = json.loads(json.dumps({"a": [1, 2], "b": {"c": 3}}))
n = len(config["a"]) + config["b"]["c"]
""",
    "the module by its name": """
import sys
def predict_five():
    return 5
name = "PROGRAMS"
n = globals()["predict_five"]() + (getattr(sys.modules[__name__], "predict_five", predict_five))()
""",
    "enumerations": """
import enum
class Phase(enum.Enum):
    A = enum.auto()
    B = enum.auto()
    C = "c"
    @property
    def is_last(self):
        return self is Phase.C
class Kind(str, enum.Enum):
    X = "x"
class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5
table = {Phase.A: 2, Phase.B: 3}
n = table[Phase.B] + Phase.B.value + len(list(Phase)) + (Phase("c") is Phase.C) + (Phase["A"] == Phase.A) + (Phase.A != Phase.B)
n += sum(p.is_last for p in Phase) + (Phase.A in (Phase.B, Phase.C)) + len(Phase.A.name) + Level.HIGH + (Kind("x") == "x") + (Level.LOW < 2)
match Phase.B:
    case Phase.A:
        n += 100
    case Phase.B:
        n += 10
""",
    "copies": """
import copy
class Box:
    def __init__(self):
        self.items = [1]
a = {"x": {"y": [1, 2]}, "box": Box()}
b = copy.deepcopy(a)
b["x"]["y"].append(3)
b["box"].items.append(2)
c = copy.copy(a)
c["z"] = 1
n = len(a["x"]["y"]) + 10 * len(b["x"]["y"]) + len(a["box"].items) + len(a) + len(c)
""",
}
HEAD = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_it_counts_as_python_does(tmp_path: Path, text: str) -> None:
    there: dict[str, object] = {"__name__": __name__}
    exec(compile(text, "program", "exec"), there)
    path = tmp_path / "train.py"
    path.write_text(f"{HEAD}{text}for _ in range(n):\n    dist.barrier()\n")
    job = job_of([path], Options(), bounds=CHECKED)
    assert job is not None
    run = predict(job)
    assert not run.assumptions and not run.bounds and not run.cut and not run.raised
    assert [sum(e.op == "barrier" for e in run.collectives(rank)) for rank in (0, 1)] == [there["n"]] * 2
