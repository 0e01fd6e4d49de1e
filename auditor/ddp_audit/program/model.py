"""What the auditor keeps of a program: a tree of the things that matter, with the conditions under which each is reached.

`Program.nodes` is the flat list in the order of execution, one node for each time that a place is reached by another chain of
calls; `Program.tree` holds the same nodes under branches, loops and calls, for exploration.

The kinds of node are the classes of `ddp_audit.program.nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, TypeVar, overload

from ddp_audit.findings import Span
from ddp_audit.knowledge.framework import Answers
from ddp_audit.program.guards import Guard, Loop
from ddp_audit.program.modules import Modules
from ddp_audit.program.nodes import Forward, Node, Spawn, Wrap
from ddp_audit.program.values import MISSING, Obj, Value, defaults_in, evaluate, options
from ddp_audit.source.files import SourceFile

L = TypeVar("L", bound=Node)
M = TypeVar("M", bound=Node)
N = TypeVar("N", bound=Node)


@dataclass(slots=True, eq=False)
class Branch:
    """Both arms of a condition that is not known to be equal and constant on all ranks."""

    guard: Guard  # of the then-arm
    then: list[Item]
    orelse: list[Item]


@dataclass(slots=True, eq=False)
class LoopItem:
    """A loop with its body, lowered once in its steady state."""

    loop: Loop
    body: list[Item]


@dataclass(slots=True, eq=False)
class CallItem:
    """A call of a project function, inlined. `return` in the body leaves it."""

    span: Span
    function: str
    body: list[Item]


@dataclass(frozen=True, slots=True)
class Caught:
    """A handler of a try statement: its place, `except RuntimeError as e` without the name, and how every way through it leaves."""

    span: Span
    text: str
    left: str  # raise, exit, continue, break, return; empty where some way goes on
    of: Value | None = None  # the class of exceptions, or several; None for all of them


@dataclass(slots=True, eq=False)
class TryItem:
    """A try statement: body, one block a handler, and the finally block."""

    span: Span
    body: list[Item]
    handlers: list[list[Item]]
    final: list[Item]
    caught: list[Caught] = field(default_factory=list)


Item = Node | Branch | LoopItem | CallItem | TryItem


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A configuration value by name: an overridable module global, an argparse option, or a field of a config dataclass."""

    value: Any
    path: str
    line: int
    origin: str  # default, config-file, launch, set


@dataclass(frozen=True, slots=True, eq=False)
class BufferSite:
    """A register_buffer call (or a layer that has buffers, such as BatchNorm) inside a module, with its own guards."""

    name: str
    span: Span
    guards: tuple[Guard, ...]
    owner: str  # class that registers it
    layer: str = ""  # library layer that brings it, e.g. torch.nn.BatchNorm2d; empty for register_buffer


@dataclass(frozen=True, slots=True)
class BufferWrite:
    """A place in a module's forward that fills a buffer with what is computed from the input."""

    name: str
    span: Span
    owner: str  # class that registers it
    method: str


@dataclass(frozen=True, slots=True)
class RandomSite:
    """A place in a method of a module or data set where numbers are drawn from a process's own generator."""

    what: str  # full name of the function: torch.randn
    span: Span
    method: str


@dataclass(slots=True)
class Inside:
    """The forward of a wrapped model, lowered by itself (see `inside.py`).

    `followed` are the modules whose own forward was followed; all that is inside another module counts as used with it. `called`
    says that the arguments are those of a forward of the program; `asked` are the attributes that it reads, also where it is
    not known what they are, as where the defaults make none. `result` is what it returns.
    """

    nodes: list[Node]
    followed: set[tuple[Any, ...]]
    called: bool
    asked: set[str]
    result: Value | None = None


@dataclass(slots=True)
class Program:
    """One entry script, lowered. `limits` says what was given up on (depth, budget), for the report."""

    entry: str
    nodes: list[Node] = field(default_factory=list)
    tree: list[Item] = field(default_factory=list)
    config: dict[str, ConfigValue] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)  # other spellings of options, without dashes, to their names in `config`
    buffers: dict[tuple[Any, ...], list[BufferSite]] = field(default_factory=dict)  # by key of the module object
    inside: dict[tuple[Any, ...], Inside] = field(default_factory=dict)  # by key of the wrapper
    modules: Modules = field(default_factory=Modules)  # the module objects, what is inside what, what is wrapped
    frameworks: Answers = field(default_factory=Answers)  # what the frameworks do that the audited files import
    sources: dict[str, list[str]] = field(default_factory=dict)  # lines of each file that was read, by path
    documents: dict[str, str] = field(default_factory=dict)  # whole text of each file, by path
    files: dict[str, SourceFile] = field(default_factory=dict)  # the same files, with their trees
    random_sites: dict[tuple[Any, ...], list[RandomSite]] = field(default_factory=dict)  # by key of a module or data set
    buffer_writes: dict[tuple[Any, ...], list[BufferWrite]] = field(default_factory=dict)  # by key of a module
    contents: dict[tuple[Any, ...], dict[str, Value]] = field(default_factory=dict)  # attributes of data sets, by their key
    world_size: int | None = None
    limits: list[str] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)  # the next node's number where what some ranks do was given up on
    passed_by: set[tuple[str, int, int]] = field(default_factory=set)  # arms that this job does not take: path, first and last line
    executed: bool = True  # False where the entry is a library file whose functions were lowered one by one

    @overload
    def of(self, kind: type[N], /) -> Iterator[N]: ...
    @overload
    def of(self, kind: type[N], other: type[M], /) -> Iterator[N | M]: ...
    @overload
    def of(self, kind: type[N], other: type[M], third: type[L], /) -> Iterator[N | M | L]: ...
    @overload
    def of(self, *kinds: type[N]) -> Iterator[N]: ...
    def of(self, *kinds: type[Node]) -> Iterator[Node]:
        """The nodes of some kinds, in order."""
        return (n for n in self.nodes if isinstance(n, kinds))

    def has(self, *kinds: type[Node]) -> bool:
        """Whether there is a node of one of some kinds."""
        return any(isinstance(n, kinds) for n in self.nodes)

    @property
    def starts_ranks(self) -> bool:
        """Whether the script starts processes for the ranks by itself."""
        return self.has(Spawn)

    def node(self, number: int) -> Node:
        """A node by its number, as `deps` of a value name forwards."""
        return self.nodes[number]

    def forwards_of(self, value: Value | None) -> list[Forward]:
        """The forwards that a loss was computed from."""
        return [] if value is None else [n for k in sorted(value.deps) if isinstance(n := self.nodes[k], Forward)]

    def wraps(self) -> dict[tuple[Any, ...], Wrap]:
        """Wrap nodes by the key of their wrapper."""
        return {n.object.key: n for n in self.of(Wrap) if n.object is not None}

    def buffers_of(self, wrap: Wrap) -> list[BufferSite]:
        """Buffers registered inside the wrapped module, as far as its constructor could be followed."""
        modules = [o for o in options(wrap.args["module"]) if isinstance(o, Obj)] if "module" in wrap.args else []
        return [site for module in modules for site in self.buffers.get(module.key, [])]

    def takes(self, path: str, line: int) -> bool:
        """Whether a line is outside of every arm that this job is known not to take."""
        return not any(path == where and first <= line <= last for where, first, last in self.passed_by)

    def line(self, path: str, line: int) -> str:
        """The text of a line without its indentation, empty if the line does not exist."""
        lines = self.sources.get(path, [])
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def first_of_each_place(nodes: Iterable[N]) -> list[N]:
    """One node a place: the first that was reached there."""
    seen: dict[Span, N] = {}
    for node in nodes:
        seen.setdefault(node.span, node)
    return list(seen.values())


def common_start(one: Sequence[object], other: Sequence[object]) -> int:
    """With how many equal elements two sequences begin: the calls that lead to two nodes, or the loops around them."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


__all__ = [
    "MISSING", "Branch", "BufferSite", "BufferWrite", "CallItem", "ConfigValue", "Guard", "Item", "Loop", "LoopItem", "Node",
    "Program",
    "RandomSite", "TryItem",
    "common_start", "defaults_in", "evaluate", "first_of_each_place",
]  # fmt: skip
