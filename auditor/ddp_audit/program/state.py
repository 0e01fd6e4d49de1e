"""The lowering's state: variables and attributes at one point of the program, and the frames they live in."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from ddp_audit.lineage import lineage
from ddp_audit.program.guards import NoSync
from ddp_audit.program.made import behind
from ddp_audit.program.model import Guard, Loop
from ddp_audit.program.operations import merge
from ddp_audit.program.slots import Key, Slots
from ddp_audit.program.values import (
    RANK,
    Bound,
    Const,
    Ext,
    Func,
    Obj,
    Unknown,
    Value,
    options,
    the_object,
)
from ddp_audit.source.files import SourceFile


@dataclass(slots=True, eq=False)
class ClassInfo:
    """A class of the project: its methods by name, bases as values, and the frame in which it was defined."""

    name: str
    node: ast.ClassDef
    frame: Frame
    bases: list[Value] = field(default_factory=list)
    methods: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)
    is_dataclass: bool = False

    def outside_bases(self) -> set[str]:
        """Full names of the library classes that this class descends from."""
        return {
            option.name for info in self.lineage() for base in info.bases for option in options(base) if isinstance(option, Ext)
        }

    def lineage(self) -> list[ClassInfo]:
        """The class and those of the project that it descends from, in the order in which they are asked for a method."""
        return lineage(self, lambda info: [cls for base in info.bases for cls in _classes_in(base)])

    def find(self, name: str) -> tuple[ClassInfo, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        """A method by name, here or in a base of the project, with the class that defines it."""
        if name in self.methods:
            return self, self.methods[name]
        return next(((info, info.methods[name]) for info in self.lineage() if name in info.methods), None)

    @property
    def is_named_tuple(self) -> bool:
        """Whether its objects are tuples with names for their places."""
        return bool(self.outside_bases() & {"typing.NamedTuple", "typing_extensions.NamedTuple"})

    def field_statements(self) -> list[ast.AnnAssign]:
        """The annotated names of its body, which are the fields of a dataclass or a named tuple."""
        return [s for s in self.node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]

    def fields(self) -> list[str]:
        """The names of its fields."""
        return [s.target.id for s in self.field_statements() if isinstance(s.target, ast.Name)]


def _classes_in(base: Value) -> list[ClassInfo]:
    """The classes of the project that a base may be."""
    return [
        option.cls
        for option in options(base)
        if isinstance(option, Obj) and isinstance(option.cls, ClassInfo) and option.kind == "class"
    ]


@dataclass(slots=True, eq=False)
class FunctionInfo:
    """A function of the project: its definition and the frame in which it was defined."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    frame: Frame
    owner: ClassInfo | None = None
    decorators: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Yielded:
    """A yield: its value, and what stands around it in its function; a context made of a generator puts that around a block."""

    value: Value
    guards: tuple[Guard, ...]
    no_sync: tuple[NoSync, ...]
    grad: bool | None
    loop: Loop | None  # the innermost


@dataclass(slots=True, eq=False)
class Frame:
    """A module or one call of a function. `path` of returned values with the guards under which each was returned."""

    id: Any
    source: SourceFile
    name: str
    parent: Frame | None = None
    module: Frame | None = None  # None for a module's own frame
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    receiver: Obj | None = None
    owner: ClassInfo | None = None
    returns: list[tuple[tuple[Guard, ...], Value]] = field(default_factory=list)
    guard_base: int = 0
    stars: list[tuple[str, int]] = field(default_factory=list)  # `from module import *`, with their dots, not followed yet
    no_sync_base: int = 0
    loop_base: int = 0
    yields: list[Yielded] = field(default_factory=list)
    grown: set[str] = field(default_factory=set)  # variables whose list or tensor was changed in place
    rebound: set[str] = field(default_factory=set)  # variables that were assigned, so that they may hold another list than given
    handed: dict[int, Key] | None = None  # slots of buffers in flight that a return gives, by their place

    def of(self, name: str) -> Frame:
        """The frame whose variable an assignment here binds."""
        if name in self.globals:
            return self.top
        return self.parent.of(name) if name in self.nonlocals and self.parent is not None else self

    @property
    def top(self) -> Frame:
        """The frame of the module that the code stands in."""
        return self.module or self


def merge_value(cond: Value, then: Value, orelse: Value) -> Value:
    """`merge`, but a no_sync context against another context keeps the condition under which it is one."""
    if then == orelse:
        return merge(cond, then, orelse)
    for method, other, polarity in ((then, orelse, True), (orelse, then, False)):
        if isinstance(method, Bound) and method.name == "no_sync" and isinstance(other, (Obj, Ext, Func)):
            wrapper = the_object(method.receiver, "ddp")
            key = ("no-sync-method", None if wrapper is None else wrapper.key)
            return Obj(key=key, kind="no-sync-method", info=(wrapper, cond, polarity), text=method.text)
    for context, other, polarity in ((then, orelse, True), (orelse, then, False)):
        if isinstance(context, Obj) and context.kind == "no-sync" and not (isinstance(other, Obj) and other.kind == "no-sync"):
            wrapper, test, _ = context.info
            if test is None and (isinstance(other, Obj) or (isinstance(other, Const) and other.value is None)):
                return Obj(key=context.key, kind="no-sync", made=context.made, info=(wrapper, cond, polarity))
    for received, kept in ((then, orelse), (orelse, then)):
        if RANK in cond.taint and _was_sent(received, kept):
            return received
    return merge(cond, then, orelse)


def _was_sent(received: Value, kept: Value) -> bool:
    """Whether a value came out of a broadcast into which the other one went: its root has kept what all ranks got."""
    for value in behind(received):
        if isinstance(value, Unknown) and value.by is not None and value.by.name.startswith("broadcast"):
            sent = list(behind(value))
            return all(any(part == one for part in sent) for one in options(kept))
    return False


def merge_slots(cond: Value, then: Slots, orelse: Slots) -> Slots:
    """Joins two layers above one base after a branch and writes the result into the base, which is returned."""
    return then.join(orelse, lambda mine, other: merge_value(cond, mine, other))
