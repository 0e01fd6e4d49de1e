"""Programs with classes and functions, for test_python_programs.py."""

from __future__ import annotations

CLASSES = {
    "inheritance": """
class A:
    def __init__(self, n=1, **more):
        self.n = n
        self.more = len(more)
    def size(self):
        return self.n
    def twice(self):
        return 2 * self.size()
class B(A):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.n += 1
    def size(self):
        return super().size() * 10
class C(B):
    size = A.size
send(A().twice())
send(B(3, x=1).twice())
send(C(n=5, x=1, y=2).twice() + C(1, z=2).more)
send(1 + 4 * isinstance(C(), (int, A)) + 8 * isinstance(A(), C))
send(len(C.__name__ + B().__class__.__name__ + type(A()).__name__))
""",
    "dicts with methods of their own": """
class Plain(dict):
    size = 4
    def total(self):
        return sum(self.values())
    @property
    def first(self):
        return list(self)[0]
p = Plain(a=1)
p["b"] = 2
send(p["a"] + p["b"])
send(p.total() + p.size + len(p.first))
class Attributes(dict):
    def __setattr__(self, name, value):
        self[name] = value
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name)
q = Attributes()
q.x = 5
send(q.x + len(q) + getattr(q, "gone", 7))
""",
    "classes that call a class above": """
class A:
    def __init__(self):
        self.seen = [1]
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
class B(A):
    def __init__(self):
        A.__init__(self)
        self.seen.append(2)
        def inner():
            return len(self.seen)
        self.n = inner()
send(B().n)
""",
    "types of values": """
class A: pass
class B(A): pass
b = B()
send(1 + (type(b) is B) + 2 * (type(b) is A) + 4 * (b.__class__ is B))
made = type(b)()
send(1 + isinstance(made, A))
send(2 if callable(A) else 5)
""",
    "several bases": """
class Base:
    def visit(self):
        return [1]
class Left(Base):
    def visit(self):
        return [2, *super().visit()]
class Right(Base):
    def visit(self):
        return [3, 3, *super().visit()]
class Both(Left, Right):
    def visit(self):
        return [4, *super().visit()]
for n in Both().visit():
    send(n)
send(len(Both().visit()))
""",
    "properties and setters": """
class Box:
    def __init__(self):
        self._n = 2
    @property
    def n(self):
        return self._n
    @property
    def double(self):
        return 2 * self.n
b = Box()
b._n = 5
send(b.n)
send(b.double)
""",
    "methods of classes": """
class Made:
    count = 1
    @classmethod
    def make(cls, n):
        cls.count += n
        return cls()
    @staticmethod
    def add(a, b=2):
        return a + b
class More(Made):
    pass
send(Made.make(2).count)
send(More.make(3).count)
send(Made.count)
send(More.add(1) + Made().add(1, b=5))
f = Made().make
send(f(1).count)
""",
    "operators": """
class V:
    def __init__(self, n):
        self.n = n
    def __add__(self, other):
        return V(self.n + other.n)
    def __mul__(self, k):
        return V(self.n * k)
    def __sub__(self, other):
        return self.n - other.n
    def __eq__(self, other):
        return self.n == other.n
    def __lt__(self, other):
        return self.n < other.n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        return self.n + i
    def __contains__(self, n):
        return n == self.n
    def __bool__(self):
        return self.n > 3
    def __call__(self, n=1):
        return self.n * 100 + n
    def __hash__(self):
        return self.n
a, b = V(2), V(5)
send((a + b).n)
send((a * 4).n)
send(b - a)
send(1 + (a == V(2)) + 2 * (a == b) + 4 * (a != b))
send(len(a) + a[10])
send(1 if a else 2)
send(1 if b else 2)
send(a() + b(7))
""",
    "containers of one's own": """
class Rows:
    def __init__(self, items):
        self.items = list(items)
    def __len__(self):
        return len(self.items)
    def __getitem__(self, i):
        return self.items[i]
    def __setitem__(self, i, value):
        self.items[i] = value
    def __iter__(self):
        for item in self.items:
            yield item + 1
class Indexed:
    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        return i + 1
    def __len__(self):
        return 3
class Counting:
    def __init__(self, most):
        self.n, self.most = 0, most
    def __iter__(self):
        return self
    def __next__(self):
        if self.n == self.most:
            raise StopIteration
        self.n += 1
        return self.n
rows = Rows([1, 2, 3])
rows[1] = 9
for n in rows:
    send(n)
send(len(rows) + rows[-1])
for n in Indexed():
    send(n)
for n in Counting(2):
    send(n)
send(sum(Counting(4)))
send(len(list(rows)) + max(rows))
counting = Counting(3)
send(next(counting) + next(counting))
send(next(iter(rows)))
""",
    "attributes by name": """
class A:
    x = 1
    def __init__(self):
        self.y = 2
    def f(self):
        return 5
a = A()
setattr(a, "z", 7)
send(getattr(a, "z") + getattr(a, "none", 3) + getattr(a, "f")())
send(1 + hasattr(a, "x") + 2 * hasattr(a, "q") + 4 * hasattr(A, "f") + 8 * hasattr(A, "y"))
send(len(vars(a)) + len(a.__dict__))
a.__dict__["w"] = 4
send(a.w)
delattr(a, "z")
send(1 + hasattr(a, "z"))
""",
    "attributes that are asked for": """
class Lazy:
    def __init__(self):
        self.known = 3
    def __getattr__(self, name):
        if name == "missing":
            raise AttributeError(name)
        return len(name)
a = Lazy()
send(a.known + a.four)
send(getattr(a, "missing", 9))
""",
    "data classes": """
from dataclasses import asdict, astuple, dataclass, field, fields, is_dataclass, replace
@dataclass
class Part:
    width: int
    height: int = 2
    @property
    def area(self):
        return self.width * self.height
@dataclass(frozen=True)
class Whole:
    part: Part
    parts: list = field(default_factory=list)
    names: dict = field(default_factory=lambda: {"a": 1})
whole = Whole(Part(3), [Part(1, 1), Part(height=4, width=5)])
send(whole.part.area)
send(sum(part.area for part in whole.parts))
plain = asdict(whole)
send(plain["part"]["width"] + plain["parts"][1]["height"] + plain["names"]["a"])
send(sum(astuple(Part(4, 5))))
send(len(fields(Part)) + len(fields(whole)))
send(1 + is_dataclass(Part) + 2 * is_dataclass(whole) + 4 * is_dataclass(3))
send(replace(Part(1), height=9).area)
send(1 + (Part(1) == Part(1)) + 2 * (Part(1) == Part(2)))
""",
    "fields that are not given": """
from dataclasses import dataclass, field
@dataclass
class A:
    a: int
    b: int = field(init=False, default=5)
    c: int = 1
    d: int = field(init=True, default=7)
    e: list = field(init=False, default_factory=lambda: [1, 2])
x = A(2, 3)
send(x.a + 10 * x.b + 100 * x.c + 1000 * x.d + len(x.e))
y = A(2, 3, 4)
send(y.b + 10 * y.d)
""",
    "data classes that inherit": """
from dataclasses import dataclass, field, KW_ONLY
@dataclass
class A:
    a: int = 1
    n: int = field(default=4, repr=False)
    def __post_init__(self):
        self.total = self.a + self.n
@dataclass
class B(A):
    b: int = 10
    a: int = 3
send(A().total)
send(B().total + B().b)
send(B(5, 6, 7).total + B(5, 6, 7).b)
send(B(b=1).b)
""",
    "classes within functions": """
def make(n):
    class Inner:
        width = n
        def get(self):
            return self.width + n
    return Inner
send(make(3)().get())
send(make(5).width)
""",
    "a name that belongs to a class": """
class A:
    rows = []
    def add(self, n):
        self.rows.append(n)
a, b = A(), A()
a.add(1)
b.add(2)
send(len(a.rows))
a.rows = [5]
send(len(b.rows) + len(a.rows))
""",
}

FUNCTIONS = {
    "arguments of all kinds": """
def f(a, b=2, /, c=3, *rest, d=4, **more):
    return a + 10 * b + 100 * c + 1000 * len(rest) + d + 7 * len(more)
send(f(1))
send(f(1, 5))
send(f(1, 5, 6, 7, 8))
send(f(1, c=9, d=1, e=2, g=3))
args, kwargs = [1, 2], {"c": 5, "z": 1}
send(f(*args, **kwargs))
send(f(*args, 7, *[8, 9], d=2, **{"y": 1}))
""",
    "decorators": """
import functools
def times(n):
    def around(function):
        @functools.wraps(function)
        def called(*args, **kwargs):
            return n * function(*args, **kwargs)
        return called
    return around
@times(3)
@times(2)
def f(a, b=1):
    return a + b
send(f(1))
send(f(2, b=5))
""",
    "results that are kept": """
import functools
calls = []
@functools.lru_cache(maxsize=None)
def slow(n):
    calls.append(n)
    return n + 1
@functools.cache
def quick(n):
    calls.append(n)
    return n
send(slow(1) + slow(1) + slow(2))
send(quick(4) + quick(4))
send(len(calls))
""",
    "partial application": """
from functools import partial, reduce
def f(a, b, c=3):
    return a + 10 * b + 100 * c
send(partial(f, 1)(2))
send(partial(f, 1, c=5)(2))
send(partial(f, b=1)(2, c=1))
send(partial(partial(f, 4), 5)(c=6))
send(reduce(lambda a, b: a * b, [1, 2, 3, 4]))
send(reduce(lambda a, b: a + b, [], 6))
""",
    "recursion": "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nsend(fib(9))\ndef depth(t):\n    return 1 + max(map(depth, t), default=0) if isinstance(t, list) else 0\nsend(depth([1, [2, [3]], []]))\n",
    "closures made in a loop": """
late = [lambda: n for n in range(1, 4)]
early = [lambda n=n: n for n in range(1, 4)]
for f in late + early:
    send(f())
""",
    "generators": """
def numbers(n):
    try:
        while n:
            got = yield n
            n = got if got is not None else n - 1
    finally:
        send(50)
def outer():
    yield from numbers(2)
    yield 7
for n in outer():
    send(n)
g = numbers(5)
send(next(g))
send(g.send(3))
send(next(g))
g.close()
send(next(g, 8))
pairs = ((a, b) for a in (1, 2) for b in (3, 4) if a + b != 5)
send(sum(a * b for a, b in pairs))
send(len(list(numbers(3))))
first, *rest = numbers(3)
send(first + len(rest))
""",
    "generators that read what is sent": """
def mean():
    total, count = 0, 0
    while True:
        n = yield total
        if n is None:
            return
        total, count = total + n, count + 1
g = mean()
next(g)
send(g.send(4) + g.send(5))
try:
    g.send(None)
except StopIteration:
    send(2)
def first(n):
    for i in range(n):
        if i == 2:
            return
        yield i + 1
send(sum(first(9)))
send(list(first(1))[0])
""",
    "memory of defaults": "def f(n, seen={}):\n    seen[n] = 1\n    return len(seen)\nf(1); f(2)\nsend(f(2))\nsend(len(f.__defaults__[0]) if hasattr(f, '__defaults__') else 2)\n",
}
