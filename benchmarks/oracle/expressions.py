"""Draw random expressions: numbers, conditions, texts, lists and dicts over the names that may be read.

Each is asked for as one that is equal on all ranks (`same`) or as any; what is bound to it is marked accordingly.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Scope:
    """The names that may be read: by type, each with whether it can differ between ranks."""

    ints: dict[str, bool] = field(default_factory=dict)
    bools: dict[str, bool] = field(default_factory=dict)
    texts: dict[str, bool] = field(default_factory=dict)
    lists: dict[str, bool] = field(default_factory=dict)
    dicts: dict[str, bool] = field(default_factory=dict)
    functions: dict[str, bool] = field(default_factory=dict)  # of one int, giving an int
    objects: dict[str, bool] = field(default_factory=dict)  # with a field `n`, a method `next(int)` and a property `double`

    def copy(self) -> Scope:
        return Scope(*(dict(getattr(self, name)) for name in self.__slots__))


class Expressions:
    """The lines of a program so far, the names that may be read, and expressions over them."""

    def __init__(self, seed: int, statements: int = 14) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.indent = 0
        self.names = 0
        self.scope = Scope()
        self.left = statements
        self.local = 0  # conditions of one rank around the place that is being drawn
        self.loops = 0
        self.function = 0
        self.outside: frozenset[str] = frozenset()  # names bound around the function that is being drawn
        self.quiet = 0  # places that may run a different number of times: no events but the probe

    def _one_in(self, n: int) -> bool:
        return self.random.randrange(n) == 0

    def _pick(self, *options: str) -> str:
        return self.random.choice(options)

    def _name(self, stem: str = "v") -> str:
        self.names += 1
        return f"{stem}{self.names}"

    def _emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    @contextmanager
    def _block(self, line: str, local: bool = False) -> Iterator[None]:
        """An indented block. What it binds is not read behind it; what it changes there may differ where `local`."""
        self._emit(line)
        saved = self.scope.copy()
        self.indent += 1
        self.local += local
        yield
        self.indent -= 1
        self.local -= local
        self._forget(saved)

    def _forget(self, saved: Scope) -> None:
        for kind in Scope.__slots__:
            before, now = getattr(saved, kind), getattr(self.scope, kind)
            for name in before:
                before[name] = before[name] or now.get(name, False)
        self.scope = saved

    def _readable(self, names: dict[str, bool], same: bool) -> list[str]:
        return [name for name, differs in names.items() if not (same and differs)]

    def _int(self, depth: int, same: bool = False) -> str:
        names = self._readable(self.scope.ints, same)
        if depth <= 0 or self._one_in(4):
            return self.random.choice([*names, *names, str(self.random.randint(0, 6))]) if names else "2"
        one: Callable[[], str] = lambda: self._int(depth - 1, same)  # noqa: E731
        listed: Callable[[], str] = lambda: self._list(depth - 1, same)  # noqa: E731
        forms: list[Callable[[], str]] = [
            lambda: f"({one()} {self._pick('+', '-', '*', '|', '&', '^')} {one()})",
            lambda: f"({one()} {self._pick('%', '//')} {self.random.randint(1, 5)})",
            lambda: f"{self._pick('max', 'min')}({one()}, {one()})",
            lambda: f"abs({one()} - {one()})",
            lambda: f"len({listed()})",
            lambda: f"sum({listed()})",
            lambda: f"({one()} if {self._bool(depth - 1, same)} else {one()})",
            lambda: f"int({self._bool(depth - 1, same)})",
            lambda: f"len({self._text(depth - 1, same)})",
            lambda: f"{self._dict(depth - 1, same)}.get({self._text(0, same)}, {one()})",
            lambda: f"([{one()}, {one()}, {one()}])[{one()} % 3]",
            lambda: f"(lambda x: x + {one()})({one()})",
            lambda: f"sum(i * {one()} for i in range({one()} % 4))",
            lambda: f"functools.reduce(lambda a, b: a + b, {listed()}, {one()})",
            lambda: f"next(iter({listed()}), {one()})",
            lambda: f"-{one()}",
            lambda: f"divmod({one()}, {self.random.randint(1, 4)})[{self.random.randint(0, 1)}]",
            lambda: f"int(str({one()} % 5))",
            lambda: f"({one()} << {self.random.randint(0, 2)})",
        ]
        functions = self._readable(self.scope.functions, same)
        objects = self._readable(self.scope.objects, same)
        if functions:
            forms += [lambda: f"{self.random.choice(functions)}({one()})"] * 3
        if objects:
            forms += [lambda: f"{self.random.choice(objects)}.{self._pick('n', 'double')}"] * 3
        return self.random.choice(forms)()

    def _bool(self, depth: int, same: bool = False) -> str:
        one: Callable[[], str] = lambda: self._int(depth - 1, same)  # noqa: E731
        names = self._readable(self.scope.bools, same)
        if names and (depth <= 0 or self._one_in(5)):
            return self.random.choice(names)
        if depth <= 0:
            return f"{self._int(0, same)} {self._pick('==', '!=', '<', '>', '<=', '>=')} {self._int(0, same)}"
        half: Callable[[], str] = lambda: self._bool(depth - 1, same)  # noqa: E731
        return self.random.choice([
            lambda: f"({one()} {self._pick('==', '!=', '<', '>', '<=', '>=')} {one()})",
            lambda: f"({half()} {self._pick('and', 'or')} {half()})",
            lambda: f"(not {half()})",
            lambda: f"({one()} {self._pick('in', 'not in')} {self._list(depth - 1, same)})",
            lambda: f"({one()} < {one()} <= {one()})",
            lambda: f"{self._pick('any', 'all')}(i {self._pick('<', '==')} {one()} for i in {self._list(depth - 1, same)})",
            lambda: f"({self._text(depth - 1, same)} == {self._text(depth - 1, same)})",
            lambda: f"bool({one()})",
            lambda: f"({self._dict(depth - 1, same)}.get({self._text(0, same)}) is {self._pick('None', 'not None')})",
            lambda: f"isinstance({one()}, {self._pick('int', 'str')})",
            lambda: f"{self._text(depth - 1, same)}.{self._pick('startswith', 'endswith')}({self._text(0, same)})",
        ])()  # fmt: skip

    def _text(self, depth: int, same: bool = False) -> str:
        names = self._readable(self.scope.texts, same)
        if depth <= 0 or self._one_in(3):
            return self.random.choice([*names, '"a"', '"b"', '"ab"'])
        one: Callable[[], str] = lambda: self._int(depth - 1, same)  # noqa: E731
        return self.random.choice([
            lambda: f"str({one()})",
            lambda: f'f"r{{{self._int(0, same)}}}"',
            lambda: f'("%d" % {self._int(0, same)})',
            lambda: f'"{{}}-{{}}".format({self._int(0, same)}, {self._int(0, same)})',
            lambda: f"({self._text(depth - 1, same)} + {self._text(depth - 1, same)})",
            lambda: f'",".join(str(i) for i in {self._list(depth - 1, same)})',
            lambda: f"{self._text(depth - 1, same)}.{self._pick('upper', 'strip', 'lower')}()",
        ])()  # fmt: skip

    def _list(self, depth: int, same: bool = False) -> str:
        names = self._readable(self.scope.lists, same)
        if names and (depth <= 0 or self._one_in(3)):
            return self.random.choice(names)
        one: Callable[[], str] = lambda: self._int(max(depth - 1, 0), same)  # noqa: E731
        if depth <= 0:
            return f"[{one()}, {one()}]"
        inner: Callable[[], str] = lambda: self._list(depth - 1, same)  # noqa: E731
        return self.random.choice([
            lambda: f"[{', '.join(one() for _ in range(self.random.randint(0, 3)))}]",
            lambda: f"list(range({one()} % 5))",
            lambda: f"[i + {one()} for i in {inner()}]",
            lambda: f"[i for i in {inner()} if i {self._pick('>', '<', '!=')} {one()}]",
            lambda: f"sorted({inner()}{self._pick('', ', reverse=True', ', key=lambda x: -x')})",
            lambda: f"({inner()} + {inner()})",
            lambda: f"{inner()}[{self._pick('1:', ':2', '::2', '::-1', '-1:')}]",
            lambda: f"list(map(lambda x: x % 3, {inner()}))",
            lambda: f"list(filter(None, {inner()}))",
            lambda: f"[a * b for a, b in zip({inner()}, {inner()})]",
            lambda: f"[k + v for k, v in enumerate({inner()})]",
            lambda: f"list({self._dict(depth - 1, same)}.values())",
            lambda: f"list(itertools.chain({inner()}, {inner()}))",
            lambda: f"[*{inner()}, {one()}]",
            lambda: f"([{one()}] * 2)",
            lambda: f"list(reversed({inner()}))",
            lambda: f"sorted(set({inner()}))",
        ])()  # fmt: skip

    def _dict(self, depth: int, same: bool = False) -> str:
        names = self._readable(self.scope.dicts, same)
        if names and self._one_in(2):
            return self.random.choice(names)
        one: Callable[[], str] = lambda: self._int(max(depth - 1, 0), same)  # noqa: E731
        forms = [
            lambda: f'{{"a": {one()}, "b": {one()}}}',
            lambda: f"dict(a={one()}, ab={one()})",
            lambda: f"{{str(i): i for i in range({one()} % 3)}}",
            lambda: f'dict(zip(["a", "b"], [{one()}, {one()}]))',
        ]
        if depth > 0:
            forms += [lambda: f"{{**{self._dict(depth - 1, same)}, 'b': {one()}}}"]
            forms += [lambda: f"({self._dict(depth - 1, same)} | {{'a': {one()}}})"]
        return self.random.choice(forms)()
