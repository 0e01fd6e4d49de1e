"""Programs with exceptions and Python's protocols, for test_python_programs.py."""

from __future__ import annotations

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
    "own exceptions that are no Exception": """
class Stop(BaseException):
    pass
class Left(Stop):
    pass
class Typed(KeyboardInterrupt):
    pass
class Gone(SystemExit):
    pass
class Plain(Exception):
    pass
for make in (Stop, Left, Typed, Gone, Plain):
    try:
        try:
            raise make()
        except Exception:
            send(2)
    except KeyboardInterrupt:
        send(3)
    except SystemExit:
        send(4)
    except BaseException as error:
        send(5 + isinstance(error, Exception))
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
