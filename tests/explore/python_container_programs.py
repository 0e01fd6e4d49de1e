"""Programs with containers, texts, numbers and patterns, for test_python_programs.py."""

from __future__ import annotations

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
q.rotate(-5)
send(q[0] * 10)
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
    "heaps and bisection of pairs": """
import bisect, heapq
heap = []
for cost, name in ((3, "ccc"), (1, "a"), (2, "bb"), (2, "b")):
    heapq.heappush(heap, (cost, name))
send(10 * heapq.heappop(heap)[0] + len(heapq.heappop(heap)[1]))
rows = [[2, [3]], [1, [4, 5]]]
heapq.heapify(rows)
send(len(heapq.heapreplace(rows, [5, []])[1]) + 10 * rows[0][0])
steps = [(1, "x"), (4, "y")]
bisect.insort(steps, (2, "z"))
send(len(steps) + steps.index((2, "z")))
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
