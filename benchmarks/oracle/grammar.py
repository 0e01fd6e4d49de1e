"""Draw random programs: every statement form, over values that are equal on all ranks and values that differ.

A program is valid Python, ends by itself, and issues events through the names of `standin.py`. `torch.manual_seed(x)` is the
probe of a value: it records x and communicates nothing. Conditions of one rank around collectives are drawn seldom, so that
most programs run to their end and the rest parts at one place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from oracle.statements import Statements

_HEADER = """\
import argparse
import contextlib
import enum
import functools
import itertools
import os
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
"""

_RANKS = ("dist.get_rank()", 'int(os.environ["RANK"])', 'int(os.getenv("RANK"))', 'int(os.environ.get("RANK", 0))')
_SIZES = ("dist.get_world_size()", 'int(os.environ["WORLD_SIZE"])', 'int(os.environ.get("WORLD_SIZE", "1"))')


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement without what it says: if, for, while, try, with, break, continue or `statement`, and the blocks inside of it."""

    kind: str
    parts: tuple[tuple[Shape, ...], ...] = ()


class Grammar(Statements):
    """One program being drawn, of statements and definitions. `text` gives it; the same seed gives the same program."""

    def text(self) -> str:
        """Draw the whole program."""
        self._preamble()
        while self.left > 0:
            self._statement()
        self._emit(f"torch.manual_seed({self._int(2)})")
        if self._one_in(2):
            self._emit("dist.barrier()")
        self._emit("dist.destroy_process_group()")
        return _HEADER + "\n".join(self.lines) + "\n"

    def _preamble(self) -> None:
        self._emit("parser = argparse.ArgumentParser()")
        self._emit('parser.add_argument("--steps", type=int, default=3)')
        self._emit('parser.add_argument("--verbose", action="store_true")')
        self._emit("args = parser.parse_args([])")
        self._emit('dist.init_process_group("gloo")')
        self._emit(f"rank = {self._pick(*_RANKS)}")
        self._emit(f"world = {self._pick(*_SIZES)}")
        self._emit("model = DDP(torch.nn.Linear(2, 2))")
        self._emit("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
        self.scope.ints.update({"rank": True, "world": False, "args.steps": False})
        self.scope.bools["args.verbose"] = False

    def _definition(self) -> None:
        self.random.choice(
            [self._function, self._function, self._class, self._class, self._generator, self._dispatch, self._record]
        )()

    def _function(self) -> None:
        """A function of one int; early returns, defaults, closures, star arguments, decorators."""
        name, parameter = self._name("f"), self._name()
        kind = self.random.randrange(6)
        outer = self.scope.copy()
        self.outside = frozenset({*outer.ints, *outer.bools})
        mutated = ""
        if kind == 1:
            mutated = self._name()
            self._emit(f"{mutated} = {self._int(1, True)}")
        if kind == 4:
            self._emit("@functools.wraps(abs)")
        signature = {0: f"{parameter}", 2: f"{parameter}, *more", 3: f"{parameter}, scale=2, **options"}.get(kind, parameter)
        self.function += 1
        loops, self.loops = self.loops, 0
        if kind == 4:
            self.lines.pop()
            self._emit("@functools.lru_cache(None)")
        if kind == 5:
            self._emit(f"def make_{name}(start):")
            self.indent += 1
            self._emit("count = start")
        self._emit(f"def {name}({signature}):")
        self.indent += 1
        if kind == 1:
            self._emit(f"global {mutated}")
            self._emit(f"{mutated} += 1")
        if kind == 5:
            self._emit("nonlocal count")
            self._emit(f"count += {parameter} % 3")
        self.scope.ints[parameter] = True
        self.quiet += kind == 4 or not self._one_in(3)
        quiet = self.quiet
        if self._one_in(2):
            with self._block(f"if {parameter} {self._pick('>', '==')} {self.random.randint(0, 3)}:", True):
                self._emit(f"return {self._int(1)}")
        if kind != 4:
            self._body(2)
        result = {2: f"{self._int(1)} + sum(more)", 3: f"{self._int(1)} * scale + len(options)", 5: "count"}.get(kind, self._int(2))
        self._emit(f"return {result}")
        self.indent -= 1
        self.quiet = 0 if quiet else self.quiet
        if kind == 5:
            self._emit(f"return {name}")
            self.indent -= 1
            self._emit(f"{name} = make_{name}({self.random.randint(0, 3)})")
        self.function -= 1
        self.outside = frozenset()
        self.loops = loops
        self.scope = outer
        if mutated:
            self.scope.ints[mutated] = True
        self.scope.functions[name] = True
        if kind == 2:
            self._emit(f"torch.manual_seed({name}({self._int(1)}, *{self._list(1)}))")
        elif kind == 3:
            self._emit(f"torch.manual_seed({name}({self._int(1)}, **{self._pick('{}', 'dict(scale=3)', 'dict(x=1)')}))")

    def _class(self) -> None:
        """A class with a field `n`, perhaps with a base class or made as a dataclass, and one object of it."""
        name, made = self._name("C"), self._name("o")
        same = self._one_in(2)
        start = self._int(1, same)
        kind = self.random.randrange(4)
        if kind == 0:
            self._emit("@dataclass")
            self._emit(f"class {name}:")
            self._emit("    n: int = 0")
            self._emit("    seen: list = field(default_factory=list)")
        elif kind == 1:
            self._emit(f"class Base{name}:")
            self._emit("    limit = 5")
            self._emit("    def __init__(self, n):")
            self._emit("        self.n = n % self.limit")
            self._emit(f"class {name}(Base{name}):")
            self._emit(f"    limit = {self.random.randint(2, 6)}")
            self._emit("    def __init__(self, n):")
            self._emit("        super().__init__(n)")
            self._emit("        self.seen = [n]")
        else:
            self._emit(f"class {name}:")
            self._emit("    made = 0")
            self._emit("    def __init__(self, n):")
            self._emit("        self.n, self.seen = n, []")
            self._emit(f"        {name}.made += 1")
        self._emit("    def next(self, by):")
        self._emit(f"        if by > {self.random.randint(0, 4)}:")
        self._emit(f"            self.{self._pick('n += by', 'n = by', 'seen.append(by)')}")
        self._emit("            return self.n")
        self._emit("        self.n += 1")
        self._emit("        return len(self.seen)")
        self._emit("    @property")
        self._emit("    def double(self):")
        self._emit("        return self.n * 2")
        if kind == 3:
            self._emit("    def __len__(self):")
            self._emit("        return self.n % 4")
            self._emit("    def __call__(self, by):")
            self._emit("        return self.next(by)")
            self._emit("    @staticmethod")
            self._emit("    def plain(by):")
            self._emit("        return by + 1")
        self._emit(f"{made} = {name}({start})")
        self.scope.objects[made] = not same or bool(self.local)
        if kind == 3:
            self._emit(f"torch.manual_seed({made}({self._int(1)}) + len({made}) + {name}.plain({self._int(1)}))")

    def _generator(self) -> None:
        name = self._name("g")
        self._emit(f"def {name}(upto):")
        self._emit("    sent = 0")
        self._emit("    while sent < upto % 5:")
        self._emit(f"        yield sent * {self.random.randint(1, 3)}")
        self._emit("        sent += 1")
        if self._one_in(2):
            self._emit(f"    yield from [{self._int(0, True)}, 4]")
        listed = self._name()
        self._emit(f"{listed} = list({name}({self._int(1)}))")
        self.scope.lists[listed] = True
        if self._one_in(2):
            same = not self._one_in(4)
            with self._looping(f"for item in {name}({self._int(1, same)}):", not same):
                self._event()

    def _dispatch(self) -> None:
        """A table of functions, or a choice by getattr."""
        table, made = self._name("t"), self._name()
        self._emit(f"{table} = {{0: lambda x: x + 1, 1: lambda x: x * 2, 2: functools.partial(max, {self._int(1, True)})}}")
        self._emit(f"{made} = {table}[{self._int(1)} % 3]({self._int(1)})")
        self.scope.ints[made] = True

    def _record(self) -> None:
        """Rank and values inside of a SimpleNamespace, a namedtuple, an Enum, a nested dict or a deque."""
        name, made = self._name("s"), self._name()
        kind = self.random.randrange(5)
        if kind == 0:
            self._emit(f"{name} = SimpleNamespace(r={self._int(1)}, w={self._int(1, True)})")
            read = f"{name}.r + {name}.w"
        elif kind == 1:
            self._emit(f'{name} = namedtuple("{name}", "r w")({self._int(1)}, w={self._int(1, True)})')
            read = f"{name}.r * 2 + {name}[1]"
        elif kind == 2:
            self._emit(f"class {name.upper()}(enum.IntEnum):")
            self._emit("    LOW = 1")
            self._emit("    HIGH = 4")
            read = f"{name.upper()}.HIGH if {self._bool(1)} else {name.upper()}.LOW.value"
        elif kind == 3:
            self._emit(f'{name} = {{"outer": {{"r": {self._int(1)}, "w": {self._int(1, True)}}}}}')
            read = f'{name}["outer"]["r"] - {name}["outer"].get("w", 1)'
        else:
            self._emit(f"{name} = deque([{self._int(1)}, {self._int(1, True)}], maxlen=3)")
            self._emit(f"{name}.append({self._int(1)})")
            read = f"{name}.popleft() + len({name})"
        self._emit(f"{made} = int({read})")
        self.scope.ints[made] = True


class Shaped(Grammar):
    """A program in the shape of another: its blocks, with bodies and conditions of the grammar's own."""

    def __init__(self, seed: int, shape: Sequence[Shape]) -> None:
        super().__init__(seed)
        self.shape = shape

    def text(self) -> str:
        """Draw the whole program."""
        self._preamble()
        self._follow(self.shape)
        self._emit(f"torch.manual_seed({self._int(2)})")
        self._emit("dist.destroy_process_group()")
        return _HEADER + "\n".join(self.lines) + "\n"

    def _follow(self, shape: Sequence[Shape]) -> None:
        for one in shape:
            self._one(one)
        if not shape:
            self._emit("pass")

    def _one(self, shape: Shape) -> None:
        test, local = self._condition()
        match shape.kind:
            case "if":
                with self._block(f"if {test}:", local):
                    self._follow(shape.parts[0])
                for part in shape.parts[1:]:
                    with self._block("else:", local):
                        self._follow(part)
            case "for" | "while" if self.loops < 2:
                with self._looping(f"for {self._name()} in range({self._int(1, not local)} % 4):", local):
                    self._follow(shape.parts[0])
            case "try":
                with self._block("try:", local):
                    self._follow(shape.parts[0])
                    self._emit(f"if {test}: raise ValueError")
                for part in shape.parts[1:2] or [()]:
                    with self._block("except ValueError:", local):
                        self._follow(part)
            case "break" | "continue" if self.loops:
                self._emit(shape.kind)
            case "statement" | "break" | "continue":
                self.random.choice([self._bind, self._change, self._event, self._probe])()
            case _:
                with self._block("with contextlib.nullcontext():"):
                    self._follow(shape.parts[0])


def draw(seed: int) -> str:
    """Return the program of a seed."""
    sizes = random.Random(seed)
    return Grammar(seed, sizes.choice((6, 10, 14, 20))).text()


def draw_shaped(seed: int, shape: Sequence[Shape]) -> str:
    """Return a program whose blocks are nested as those of a `shape`, with bodies and conditions that are drawn."""
    return Shaped(seed, shape).text()
