"""Python as programs use it, followed by the interpreted run: what each program sends is what CPython makes it send.

A program calls `send` with numbers from 1 on; CPython runs it here, and in the prediction each is the size of one reduction.
"""

from __future__ import annotations

from pathlib import Path

import pytest
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

EXCEPTIONS = {
    "which handler takes it": """
for make in (KeyError, IndexError, ZeroDivisionError, OverflowError, FileNotFoundError, NotImplementedError, StopIteration, UnicodeError):
    try:
        raise make("x")
    except LookupError:
        send(1)
    except ArithmeticError:
        send(2)
    except OSError:
        send(3)
    except (RuntimeError, ValueError):
        send(4)
    except Exception as error:
        send(5 + len(error.args))
""",
    "own exceptions": """
class Stop(Exception):
    pass
class Sooner(Stop, ValueError):
    def __init__(self, n):
        super().__init__("sooner", n)
        self.n = n
for make in (lambda: Stop("a"), lambda: Sooner(4), lambda: RuntimeError("r")):
    try:
        raise make()
    except ValueError as error:
        send(error.n + len(error.args))
    except Stop as error:
        send(len(error.args))
    except RuntimeError:
        send(9)
""",
    "errors of operations": """
def tried(action):
    try:
        action()
    except ZeroDivisionError:
        return 1
    except IndexError:
        return 2
    except KeyError as error:
        return 3 + len(error.args)
    except ValueError:
        return 5
    except TypeError:
        return 6
    except AttributeError:
        return 7
    except AssertionError as error:
        return 8 + len(error.args)
    except StopIteration:
        return 10
    return 11
d, rows = {"a": 1}, [1, 2]
send(tried(lambda: 1 // 0))
send(tried(lambda: 1 % 0))
send(tried(lambda: 1 / 0))
send(tried(lambda: rows[5]))
send(tried(lambda: rows[-3]))
send(tried(lambda: d["b"]))
send(tried(lambda: d.pop("b")))
send(tried(lambda: [].pop()))
send(tried(lambda: int("x")))
send(tried(lambda: rows.index(7)))
send(tried(lambda: rows.remove(7)))
send(tried(lambda: max([])))
send(tried(lambda: next(iter([]))))
send(tried(lambda: d.popitem()))
send(tried(lambda: d.get("z")))
""",
    "an assertion": """
def checked(n):
    try:
        assert n > 2, "too small"
    except AssertionError as error:
        return len(error.args)
    return n
send(checked(1))
send(checked(5))
""",
    "raised again": """
def inner():
    try:
        raise KeyError("k")
    except KeyError:
        send(1)
        raise
try:
    inner()
except LookupError as error:
    send(2 + len(error.args))
try:
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise RuntimeError("of it") from error
except RuntimeError as error:
    send(len(str(error)))
try:
    raise
except RuntimeError:
    send(8)
""",
    "a bare except and else": """
for n in (0, 1):
    try:
        4 // n
    except:
        send(1)
    else:
        send(2)
        try:
            int("q")
        except ValueError:
            send(3)
    finally:
        send(4)
""",
    "finally with return, break and exceptions": """
def f(n):
    for i in range(3):
        try:
            if n == i:
                return i + 1
            if n == 7:
                raise ValueError
        except ValueError:
            return 9
        finally:
            send(10 + i)
            if n == 5:
                break
    return 6
for n in (0, 2, 5, 7, 8):
    send(f(n))
""",
    "an exit of the program is no exception": """
try:
    try:
        raise SystemExit(0)
    except Exception:
        send(1)
    except SystemExit:
        send(2)
    raise KeyboardInterrupt
except BaseException:
    send(3)
""",
    "context managers": """
from contextlib import contextmanager, nullcontext, suppress, ExitStack, closing
@contextmanager
def entered(n):
    send(n)
    try:
        yield n + 1
    except KeyError:
        send(n + 2)
    finally:
        send(n + 3)
with entered(1) as n, entered(n + 10) as m:
    send(m)
with entered(20):
    raise KeyError
with suppress(ValueError, KeyError):
    send(30)
    raise KeyError("x")
    send(31)
with nullcontext(5) as n:
    send(n)
with ExitStack() as stack:
    stack.callback(send, 41)
    n = stack.enter_context(entered(50))
    stack.callback(lambda a, b=2: send(a + b), 40, b=3)
    send(n)
send(7)
""",
    "context managers that are classes": """
class Guard:
    def __init__(self, n, takes):
        self.n, self.takes = n, takes
    def __enter__(self):
        send(self.n)
        return self
    def __exit__(self, kind, error, trace):
        send(self.n + (1 if kind is None else 2))
        return self.takes
with Guard(1, True) as outer, Guard(10, False):
    raise RuntimeError
try:
    with Guard(20, False):
        raise RuntimeError
except RuntimeError:
    send(30)
def leaves():
    with Guard(40, True):
        return 45
    return 46
send(leaves())
for n in range(3):
    with Guard(50 + 5 * n, None):
        if n == 1:
            break
        continue
""",
}

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

CONTAINERS = {
    "lists": """
a = [3, 1, 2]
a.append(5)
a.extend([7, 8])
a.insert(1, 9)
send(a[1] + a[-1])
a.remove(9)
send(a.pop() + a.pop(0))
send(a.index(5) + a.count(2))
a.sort()
send(a[0] * 100 + a[-1])
a.sort(key=lambda n: -n)
send(a[0])
a.sort(reverse=True, key=lambda n: n % 3)
send(a[0])
a.reverse()
send(a[0])
b = a.copy()
b.clear()
send(len(a) + len(b) + 1)
a[1:3] = [4, 4, 4, 4]
send(len(a))
a[::2] = [1] * len(a[::2])
send(sum(a))
send(len([0] * 3 + [1, 2]) + (2 in a) + (99 not in a))
send(1 + ([1, 2] == [1, 2]) + 2 * ([1, 2] < [1, 3]) + 4 * ([2] > [1, 5]))
""",
    "tuples": """
t = (1, 2, 2, 3)
send(t.count(2) + t.index(3))
send(len(t + (4,)) + sum(t[1:]))
send(1 + ((1, 2) < (1, 3)) + 2 * (() == ()) + 4 * ((1,) in [(1,), (2,)]))
a, b = b, a = 1, 2
send(a * 10 + b)
d = {(1, 2): 5}
send(d[1, 2])
""",
    "dicts": """
d = {"a": 1, "b": 2}
d["c"] = 3
d.update({"d": 4}, e=5)
send(sum(d.values()))
send(d.pop("a") + d.pop("zz", 7))
send(d.setdefault("b", 9) + d.setdefault("q", 9))
send(d.get("none", 4) + len(d))
send(len("".join(d)) + len([k for k in d if k > "b"]))
for i, (k, v) in enumerate(d.items()):
    send(1 + i + v)
key, value = d.popitem()
send(value)
e = {**d, "b": 50, **{"z": 1}}
send(e["b"] + len(e))
f = d | {"b": 60}
send(f["b"] + d["b"])
f |= {"y": 1}
send(len(f))
send(list(d)[0] == "b" and 4 or 5)
send(list(reversed(d))[0] == "q" and 4 or 5)
send(1 + ("b" in d) + 2 * ("zz" in d) + 4 * (d == dict(d)))
send(len({k: v for k, v in d.items() if v > 3}))
send(max(d.values()) + len(max(d, key=d.get)))
d.clear()
send(len(d) + 1)
send(sorted({3: "x", 1: "y"})[0] + min({5: 1, 4: 2}))
""",
    "sets": """
s = {1, 2, 3}
s.add(4)
s.add(4)
s.discard(9)
s.remove(1)
send(len(s))
send(sum(s & {2, 3, 9}) + sum(s | {10}))
send(sum(s - {2}) + sum(s ^ {2, 7}))
send(1 + s.issubset({2, 3, 4, 5}) + 2 * s.issuperset({9}) + 4 * s.isdisjoint({8}) + 8 * ({2} <= s) + 16 * (s < s))
s.update([5, 6], (7,))
send(len(s.union([1]).intersection([1, 5]).difference([5])))
t = frozenset(s)
send(len(t) + (5 in t) + len({t, frozenset(s)}))
u = s.copy()
u.clear()
send(len(s) + len(u))
send(len({n % 3 for n in range(10)}))
try:
    s.remove(99)
except KeyError:
    send(8)
""",
    "slices": """
a = list(range(10))
send(sum(a[2:5]) + sum(a[:-7]) + sum(a[7:]))
send(sum(a[::3]) + a[::-1][0] + sum(a[8:2:-2]))
send(len(a[100:]) + 1)
s = slice(1, 8, 2)
send(sum(a[s]))
send(len("abcdef"[1:-1]) + len((1, 2, 3)[:2]))
del a[::2]
send(len(a))
r = range(2, 20, 3)
send(r[1] + r[-1] + len(r[1:3]) + (8 in r) + (9 in r))
send(sum(r) + max(r) + r.index(8))
send(list(reversed(range(4)))[0])
""",
    "comprehensions": """
send(sum(x * y for x in range(3) for y in range(x)) + 1)
send(len([(a, b) for a in "ab" for b in "xyz" if (a, b) != ("a", "x")]))
rows = [[1, 2], [3, 4]]
send([r[0] for r in zip(*rows)][1])
send(sum(sum(r) for r in rows if r[0] > 1))
table = {k: [k * i for i in range(3)] for k in (1, 2)}
send(table[2][2] + len(table))
send(len({len(w) for w in ("a", "bb", "cc")}))
send(len([n for n in range(20) if n % 2 if n % 3]))
""",
    "iteration": """
send(sum(a * b for a, b in zip([1, 2, 3], [4, 5, 6, 7])))
send(sum(i * c for i, c in enumerate([5, 6], start=1)))
send(len(list(filter(None, [0, 1, "", "x"]))))
it = iter([1, 2, 3])
next(it)
send(sum(it))
send(sum(it) + 1)
send(sorted("hello", reverse=True)[0] == "o" and 3 or 4)
send(sorted([(2, "b"), (1, "z")], key=lambda p: p[1])[0][0])
send(1 + any(n > 2 for n in (1, 3)) + 2 * all(n > 2 for n in (1, 3)) + 4 * all([]) + 8 * any([]))
send(min("bca") == "a" and min(3, 1, 2) + max([4, 9], key=lambda n: -n))
send(min([], default=7) + min([5, -6], key=abs))
send(sum([[1], [2, 3]], [])[2] + sum((1, 2), 10))
""",
    "sorting what cannot be compared": """
rows = [(2, "b"), (1, "z"), (2, "a")]
rows.sort()
send(rows[0][0] * 10 + rows[1][0])
send(ord(sorted(rows, key=lambda r: r[1])[0][1]))
send(sorted([True, False, True])[0] + 1)
send(sorted({"b": 1, "a": 2}, reverse=True)[0] == "b" and 3 or 4)
send([n for _, n in sorted([(1, 5), (0, 6), (1, 4)], key=lambda r: r[0])][2])
send([n for _, n in sorted([(1, 5), (0, 6), (1, 4)], key=lambda r: r[0], reverse=True)][1])
try:
    max(())
except ValueError:
    send(9)
""",
    "counting containers": """
from collections import Counter, OrderedDict, defaultdict, deque, ChainMap
c = Counter("aab")
c.update("bbb")
c["z"] += 1
send(c["a"] + c["b"] * 10 + c["q"])
send(c.most_common(1)[0][1] + len(c.most_common()))
send(sum((Counter(a=3, b=1) + Counter(a=1)).values()))
d = defaultdict(list)
d["x"].append(1)
d["x"].append(2)
send(len(d["x"]) + len(d["y"]) + len(d))
e = defaultdict(int, {"a": 4})
e["a"] += 1
e["b"] += 2
send(e["a"] * 10 + e["b"])
o = OrderedDict([("a", 1), ("b", 2)])
o.move_to_end("a")
send(list(o)[0] == "b" and 5 or 6)
o.popitem(last=False)
send(len(o) + o["a"])
q = deque([1, 2, 3], maxlen=4)
q.append(4)
q.append(5)
q.appendleft(9)
send(q[0] + q[-1] + len(q))
q.extend([7, 8])
send(q.popleft() + q.pop())
q.rotate(1)
send(q[0] + len(q))
try:
    deque().pop()
except IndexError:
    send(4)
q.extendleft([30, 40])
send(q[0])
q.clear()
send(len(q) + 1)
""",
    "itertools": """
import itertools
send(sum(itertools.chain([1], (2, 3))) + len(list(itertools.product([1, 2], "ab"))))
send(sum(itertools.islice(itertools.count(5), 3)) + sum(itertools.islice(itertools.count(1, 2), 3)))
send(sum(itertools.islice(range(10), 2, 8, 3)))
send(list(itertools.accumulate([1, 2, 3], lambda a, b: a * b + 1))[-1] + list(itertools.accumulate([1, 2], initial=10))[-1])
send(sum(itertools.repeat(4, 3)) + sum(itertools.islice(itertools.cycle([1, 2]), 5)))
send(len(list(itertools.permutations(range(3)))) + len(list(itertools.permutations(range(4), 2))))
send(len(list(itertools.combinations("abcd", 3))) + len(list(itertools.combinations_with_replacement("ab", 2))))
send(sum(a - b for b, a in itertools.pairwise([1, 5, 7])))
send(sum(k * len(list(g)) for k, g in itertools.groupby([1, 1, 3, 1])))
send(sum(len(list(g)) * 10 ** i for i, (k, g) in enumerate(itertools.groupby(["a", "ab", "b"], key=len))))
send(sum(a + b for a, b in itertools.zip_longest([1, 2, 3], [4], fillvalue=10)))
""",
    "named tuples": """
from collections import namedtuple
from typing import NamedTuple
P = namedtuple("P", ["x", "y"])
class Q(NamedTuple):
    a: int
    b: int = 4
    @property
    def both(self):
        return self.a * self.b
p = P(1, y=2)
send(p.x + p[1] * 10 + len(p))
send(sum(p) + sum(p._replace(x=5)))
x, y = p
send(x + y)
send(Q(3).both + Q(3, 5).both)
send(1 + (p == (1, 2)) + 2 * isinstance(p, tuple))
send(p._asdict()["y"])
""",
    "heaps and bisection": """
import bisect, heapq
h = [5, 2, 8]
heapq.heapify(h)
heapq.heappush(h, 1)
send(heapq.heappop(h) * 10 + heapq.heappop(h))
send(heapq.heappushpop(h, 4) + heapq.heapreplace(h, 6))
a = [1, 3, 3, 7]
bisect.insort(a, 4)
send(a.index(4) + len(a))
try:
    heapq.heappop([])
except IndexError:
    send(2)
""",
}

TEXTS = {
    "methods": """
s = "Deep Learning"
send(len(s.lower().split("e")) + s.count("e") + s.find("L") + s.index("n"))
send(1 + s.startswith("Deep") + 2 * s.endswith(("x", "g")) + 4 * ("ear" in s) + 8 * s.isdigit() + 16 * s.lower().islower())
send(len(s.replace("e", "")) + len(s.split()) + len("a,b,,c".split(",")) + len(" x ".strip()))
send(len("-".join(["a", "bb"])) + len("x".center(5)) + len("7".zfill(3)) + len("ab".ljust(4)))
send(len("a.b.c".rsplit(".", 1)[0]) + len("k=v=w".partition("=")[2]) + len("a/b/c".rpartition("/")[0]))
send(len("a\\nb\\n".splitlines()) + ord("a") + len(chr(98)) + int("0x1f", 16))
send(len("prefix_name".removeprefix("prefix_")) + len("a.py".removesuffix(".py")))
send("abc".find("z") + 2)
send(len("%d-%s" % (3, "xx")) + len("{} {n:03d}".format(1, n=2)) + len(f"{1.5:.2f}{'a':>4}{7!r}"))
send(len("ab" * 3) + ("b" > "a") + ("abc"[1] == "b") + len("aXb".title()) + len("abc".upper().swapcase()))
send(len(repr("a")) + len(str(None)))
send(int("12") + int(" 7 ") + int(float("3.9")) + int(True))
""",
    "structured texts": """
import json
d = json.loads('{"a": [1, 2, {"b": 5}], "c": null, "d": true}')
send(d["a"][2]["b"] + len(d) + (d["c"] is None) + d["d"])
send(len(json.dumps({"x": [1, 2]})) + len(json.dumps([1], indent=2)))
send(json.loads(json.dumps({"n": 3}))["n"])
""",
}

NUMBERS = {
    "mathematics": """
import math
send(math.ceil(7 / 2) + math.floor(3.9) + int(math.sqrt(50)) + math.gcd(12, 18))
send(math.comb(5, 2) + math.factorial(4) + math.prod([2, 3, 4]) + int(math.log2(64)) + int(math.log10(1000)))
send(int(math.pow(2, 5)) + int(math.fabs(-3)) + math.isqrt(17) + int(10 * math.pi) + math.trunc(2.7))
send(1 + math.isnan(float("nan")) + 2 * math.isinf(float("inf")) + 4 * math.isclose(0.1 + 0.2, 0.3) + 8 * (math.inf > 10**9))
send(int(100 * math.cos(0.5)) + int(100 * math.sin(0.5)) + int(math.exp(2)) + int(math.log(100)))
send(sum(divmod(17, 5)) + divmod(-7, 2)[1] + (-7 // 2) + 10 + (-7 % 3))
send(round(2.5) + round(3.5) + round(2.675 * 100) + int(round(3.14159, 2) * 100))
send(abs(-5) + pow(2, 10) + pow(3, 4, 5) + int(7.9) + int(-7.9) + 20)
send((5 & 3) + (5 | 3) + (5 ^ 3) + (1 << 5) + (~5 & 15) + (-3 + 10) + (+4))
send(int(1e3) + 1_000 + 0x10 + 0b11 + (10).bit_length() + int((0.5).is_integer()))
""",
    "truth": """
for v in (0, 1, "", "a", [], [0], {}, {1: 2}, None, 0.0, (), (0,), set(), range(0), range(2), -1):
    send(1 if v else 2)
    send(1 if not v else 2)
send((0 or 5) + (3 and 4) + (None or 0 or 6) + (1 and 2 and 3))
send(1 + (1 < 2 < 3) + 2 * (1 < 3 < 2) + 4 * (1 == 1.0) + 8 * (None is None) + 32 * (True == 1))
send((1 if 2 > 3 else 2 if 3 > 2 else 3) + bool("x"))
x = 5
send(1 if 0 <= x <= 5 else 2)
send(1 if x not in (1, 2) and x in {5} else 2)
""",
    "kinds": """
send(1 + isinstance(1, int) + 2 * isinstance(1.0, int) + 4 * isinstance("a", (int, str)) + 8 * isinstance([], list) + 16 * isinstance({}, dict))
send(1 + isinstance(True, int) + 2 * isinstance((), tuple) + 8 * isinstance({1}, set) + 16 * isinstance(2, float))
class A: pass
class B(A): pass
send(1 + isinstance(B(), A) + 2 * isinstance(A(), B) + 8 * (type(B()) is B) + 16 * (type(B()) is A))
""",
}

MATCHES = {
    "values, sequences and classes": """
import enum
class Color(enum.Enum):
    RED = 1
    BLUE = 2
class Point:
    __match_args__ = ("x", "y")
    def __init__(self, x, y):
        self.x, self.y = x, y
def told(value):
    match value:
        case None:
            return 1
        case True | False:
            return 2
        case 0 | 1:
            return 3
        case int(n) if n > 100:
            return 4
        case int() | float():
            return 5
        case "a" | "b" as letter:
            return 6 + len(letter)
        case str(text):
            return 10 + len(text)
        case []:
            return 20
        case [x]:
            return 21 + x
        case [1, _, *rest]:
            return 30 + len(rest)
        case (x, y):
            return 40 + x + y
        case [*_, 9]:
            return 50
        case {"kind": "k", "n": n, **rest}:
            return 60 + n + len(rest)
        case {"kind": kind}:
            return 70 + len(kind)
        case {}:
            return 80
        case Point(0, y):
            return 90 + y
        case Point(x=x, y=2):
            return 100 + x
        case Color.RED:
            return 110
        case _:
            return 120
for value in (None, True, 0, 500, 7, 2.5, "a", "b", "xyz", [], [3], [1, 2], [1, 2, 3], (4, 5), [4, 5, 9], [4, 5, 6],
              {"kind": "k", "n": 3, "m": 1}, {"kind": "other"}, {"z": 1}, {}, Point(0, 5), Point(3, 2), Point(3, 3), Color.RED, Color.BLUE):
    send(told(value))
""",
    "nested": """
for command in (["go", ["north", 2]], ["go", "south"], {"a": [1, {"b": 5}]}, ["stop"], [["x"]]):
    match command:
        case ["go", [way, n]]:
            send(len(way) + n)
        case ["go", way]:
            send(10 + len(way))
        case {"a": [_, {"b": n}]}:
            send(20 + n)
        case ["stop" | "halt"]:
            send(30)
        case [[str(text)]]:
            send(40 + len(text))
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

ERRORS_AND_PROTOCOLS = {
    "unpacking what has another length": """
def tried(action):
    try:
        action()
    except ValueError:
        return 5
    return 6
def two(value):
    a, b = value
def ends(value):
    a, *rest, b = value
    send(1 + len(rest))
for value in ([1, 2, 3], (1,), "ab", "abc", {"k": 1}, {1: 1, 2: 2}, range(3), set(), [[1], 2]):
    send(tried(lambda: two(value)))
for value in ([1, 2, 3], (1,), "ab", range(5)):
    send(tried(lambda: ends(value)))
try:
    for a, (b, c) in [(1, (2, 3)), (4, (5,))]:
        send(b)
except ValueError:
    send(8)
try:
    send(len([a for a, b in ((1, 2), (1, 2, 3))]))
except ValueError:
    send(9)
[] = ()
""",
    "keys and pairs as sets": """
d, e = {"a": 1, "b": 2}, {"b": 2, "c": 3}
send(1 + (d.keys() == {"a", "b"}) + 2 * (d.keys() == {"a"}) + 4 * (d.keys() != {"a"}) + 8 * (d.items() == {("a", 1), ("b", 2)}) + 16 * (d.keys() == ["a", "b"]))
send(1 + (d.keys() <= {"a", "b", "c"}) + 2 * (d.keys() == {"b": 1, "a": 2}.keys()) + 4 * ({"a", "b"} == d.keys()) + 8 * (d.keys() < e.keys()))
send(len(d.keys() - e.keys()) + 10 * len(d.keys() | {"c"}) + 100 * len(d.keys() & e.keys()) + 1000 * len(e.keys() ^ {"a", "c"}))
send(len(d.items() & e.items()) + 10 * len({"a", "z"} - d.keys()) + 100 * len(sorted(d.keys() | e.keys())))
send(1 + (list(d.keys()) == ["a", "b"]) + 2 * (list(d.values()) == [1, 2]) + 4 * ("a" in d.keys()) + 8 * (set(d) == d.keys()))
""",
    "dicts with methods of their own": """
class Upper(dict):
    def __getitem__(self, key):
        return super().__getitem__(key.upper()) + 40
    def __setitem__(self, key, value):
        super().__setitem__(key.upper(), value)
    def __delitem__(self, key):
        send(7)
    def __len__(self):
        return super().__len__() + 10
    def __contains__(self, key):
        return super().__contains__(key.upper())
class Counted(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key]
d = Upper(A=1)
send(d["a"])
d["bb"] = 3
d["BB"] = 4
send(d["bb"] + len(d))
send(1 + ("bb" in d) + 2 * ("c" in d) + 4 * ("c" not in d))
del d["a"]
try:
    d["z"]
except KeyError:
    send(5)
c = Counted(x=9)
send(c["x"] + c["four"] + 100 * len(c))
send(c["four"] + c.get("five", 5))
class Odd:
    def __contains__(self, n):
        return n % 2
send(1 + (3 in Odd()) + 2 * (4 in Odd()) + 4 * (4 not in Odd()))
""",
    "iterators that fail": """
class Rows:
    def __init__(self):
        self.n = 0
    def __iter__(self):
        return self
    def __next__(self):
        self.n += 1
        if self.n == 3:
            raise KeyError("gone")
        return self.n
try:
    for n in Rows():
        send(n)
    send(9)
except KeyError:
    send(8)
class Ends(Rows):
    def __next__(self):
        try:
            return super().__next__()
        except KeyError:
            raise StopIteration from None
for n in Ends():
    send(n)
""",
    "types of values": """
for v in (1, True, 2.5, "a", [1], (1,), {1: 2}, {1}, b"a"):
    send(1 + (type(v) is int) + 2 * (type(v) is bool) + 4 * (type(v) == float) + 8 * (type(v) is str) + 16 * (type(v) in (list, tuple)) + 32 * (type(v) is dict))
send(type(3)("7") + len(type("a")(12)))
class A: pass
send(1 + (type(A()) is A) + 2 * (type(3) is A))
kinds = [type(len), type(lambda: 0), type(None), type(range)]
send(len(kinds))
""",
    "a property that is kept": """
import functools
from functools import cached_property
class A:
    runs = 0
    @functools.cached_property
    def n(self):
        A.runs += 1
        return 5 + A.runs
    @cached_property
    def rows(self):
        return [1]
    @property
    def m(self):
        A.runs += 1
        return A.runs
class B(A):
    @cached_property
    def n(self):
        return super().n + 100
a, b = A(), A()
send(a.n + a.n)
send(A.runs)
send(b.n + a.n)
b.n = 90
send(b.n + A.runs)
del a.n
send(a.n + A.runs)
a.rows.append(2)
send(len(a.rows) + 10 * len(b.rows))
send(a.m); send(a.m)
""",
    "classes that are told of their subclasses": """
found = {}
class Plugin:
    size = 1
    def __init_subclass__(cls, /, name=None, size=3, **kwargs):
        super().__init_subclass__(**kwargs)
        found[name or cls.__name__] = cls
        cls.size = size
class P(Plugin, name="p", size=4):
    size = 9
class Q(Plugin):
    pass
class R(P, size=7):
    def __init_subclass__(cls, **kwargs):
        send(50)
        super().__init_subclass__(**kwargs)
class S(R, name="s", size=8):
    pass
send(len(found))
send(Plugin.size + 10 * P.size + 100 * Q.size + 1000 * R.size)
send(found["s"]().size + len("".join(found)))
class Plain:
    pass
class T(Plain, Plugin, size=6):
    pass
send(T.size + len(found))
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
