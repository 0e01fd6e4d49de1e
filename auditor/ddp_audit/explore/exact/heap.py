"""Two pictures of what an interpreted run holds, and in what the later one differs from the earlier one.

A picture is taken of everything that can be reached from some roots. Two pictures are alike where one can be laid over the other,
object for object: what was made again is equal to what it took the place of, if it holds the same and stands in the same places.
"""

from __future__ import annotations

import ast
import collections
import random
import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

from ddp_audit.explore.exact.generators import Running
from ddp_audit.explore.exact.values import PLAIN, Instance, Lib, Module, Scope, Stream
from ddp_audit.source.files import SourceFile
from ddp_audit.source.project import Project

_MOST = 60_000  # objects of a picture
_MOST_FLAT = 16  # parts of a value that is compared as a whole
_ATOMS = (
    ast.AST, SourceFile, Project, type, types.ModuleType, types.GeneratorType, types.BuiltinFunctionType, types.CodeType,
    types.NotImplementedType, types.EllipsisType, Enum,
)  # fmt: skip
_OWN = __package__.partition(".")[0] + "."
_FLAT = (*PLAIN, Lib, range, slice, Decimal, Fraction, PurePosixPath, re.Pattern)

Label = tuple[str, Any]  # how an object is held: a variable, an attribute of the program's, a field of the interpreter's, an item


class TooDifferent(Exception):
    """The pictures differ in more than counters and lists that grow, or one is too large to take."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A whole number that the later picture has at the same place, with how much it grew."""

    owner: Any
    label: Label
    by: int


@dataclass(frozen=True, slots=True)
class Grown:
    """A list to which elements were added, and all places that hold it. `old` are the added ones that were there before."""

    held: list[Any]
    added: tuple[Any, ...]
    old: frozenset[int]  # by id()
    labels: frozenset[Label]


@dataclass(slots=True)
class Picture:
    """The objects that were reached, in order, each with what it held: values that are plain, and the numbers of other objects."""

    objects: list[Any]
    parts: list[dict[Label, Any]]
    numbers: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Ref:
    number: int


def picture(roots: Iterable[tuple[Label, Any]], leave_out: Iterable[Any] = ()) -> Picture:
    """Take a picture. `leave_out` are objects that are not looked into. Raises TooDifferent where there is too much."""
    apart = {id(value) for value in leave_out}
    start = dict(roots)
    made = Picture([start], [], {id(start): 0})
    for owner in made.objects:  # which grows meanwhile
        parts: dict[Label, Any] = {}
        for label, value in start.items() if owner is start else _parts(owner):
            if _is_flat(value) or isinstance(value, _ATOMS) or id(value) in apart:
                parts[label] = value
                continue
            number = made.numbers.get(id(value))
            if number is None:
                number = made.numbers[id(value)] = len(made.objects)
                made.objects.append(value)
                if number > _MOST:
                    raise TooDifferent
            parts[label] = _Ref(number)
        made.parts.append(parts)
    return made


def differences(earlier: Picture, later: Picture) -> tuple[list[Counter], list[Grown]]:
    """In what counters and lists two pictures differ. Raises TooDifferent where they differ in anything else."""
    onto, back = {0: 0}, {0: 0}
    queue, counters, grown = [(0, 0)], list[Counter](), list[Grown]()
    while queue:
        one, other = queue.pop()
        was, now = earlier.objects[one], later.objects[other]
        if type(was) is not type(now):
            raise TooDifferent
        mine, theirs = earlier.parts[one], later.parts[other]
        if mine.keys() != theirs.keys():
            if type(now) is not list or len(theirs) < len(mine):
                raise TooDifferent
            added = tuple(now[len(mine) :])
            old = frozenset(id(value) for value in added if id(value) in earlier.numbers)
            grown.append(Grown(now, added, old, _holders(later, other)))
        for label, left in mine.items():
            right = theirs[label]
            if type(left) is not type(right):
                raise TooDifferent
            if isinstance(left, _Ref):
                pair = left.number, right.number
                if pair[0] not in onto and pair[1] not in back:
                    onto[pair[0]], back[pair[1]] = pair[1], pair[0]
                    queue.append(pair)
                elif onto.get(pair[0]) != pair[1]:
                    raise TooDifferent
            elif type(left) is int and left != right:
                counters.append(Counter(now, label, right - left))
            elif left is not right and not (_is_flat(left) and _equal(left, right)):
                raise TooDifferent
    return counters, grown


def _is_flat(value: Any) -> bool:
    """Whether a value is nothing but itself, so that an equal one is the same."""
    if type(value) in (tuple, frozenset):
        return len(value) <= _MOST_FLAT and all(type(part) in _FLAT for part in value)
    return type(value) in _FLAT


def _equal(left: Any, right: Any) -> bool:
    return bool(left == right) or (left != left and right != right)


def _holders(later: Picture, number: int) -> frozenset[Label]:
    """How an object is held, wherever it is."""
    found = [label for parts in later.parts for label, part in parts.items() if isinstance(part, _Ref) and part.number == number]
    return frozenset(found)


def _parts(owner: Any) -> Iterator[tuple[Label, Any]]:
    """What an object holds, with a label for each."""
    match owner:
        case Scope():
            for name, value in owner.variables.items():
                yield ("variable", name), value
            for name in ("parent", "receiver", "owner", "outer", "enclosing", "yielded"):
                yield ("field", name), getattr(owner, name)
        case Instance() | Module():
            for name, value in owner.attrs.items():
                yield ("attribute", name), value
            for name in _names(type(owner)):
                if name != "attrs":
                    yield ("field", name), getattr(owner, name)
        case dict() | types.MappingProxyType():
            for number, (key, value) in enumerate(owner.items()):
                yield ("key", number), repr(key) if type(key) in _FLAT else key
                yield ("item", number), value
            yield from _fields(owner)
        case list() | tuple() | collections.deque():
            for number, value in enumerate(owner):
                yield ("item", number), value
            yield from _fields(owner)
        case int() | str() | float():  # a class of its own below these
            yield ("value", None), repr(owner)
            yield from _fields(owner)
        case set() | frozenset():
            flat = all(isinstance(value, _FLAT) for value in owner)
            for number, value in enumerate(sorted(owner, key=repr if flat else id)):
                yield ("item", number), value
        case random.Random():
            yield ("state", None), repr(owner.getstate())
        case types.FunctionType():
            yield ("field", "code"), owner.__code__
            for number, cell in enumerate(owner.__closure__ or ()):
                try:
                    yield ("cell", number), cell.cell_contents
                except ValueError:  # it is not set yet
                    continue
            yield ("field", "defaults"), owner.__defaults__
        case types.MethodType():
            yield ("field", "function"), owner.__func__
            yield ("field", "self"), owner.__self__
        case Stream() | Running():
            yield ("field", "drawn"), owner.drawn  # all that changes in it when it is asked
        case _ if type(owner).__module__.startswith(_OWN):
            yield from _fields(owner)
        case _:
            raise TooDifferent(type(owner).__name__)


def _fields(owner: Any) -> Iterator[tuple[Label, Any]]:
    for name in _names(type(owner)):
        try:
            yield ("field", name), getattr(owner, name)
        except AttributeError:
            continue
    for name, value in getattr(owner, "__dict__", {}).items():
        yield ("field", name), value


_SLOTS: dict[type, tuple[str, ...]] = {}


def _names(kind: type) -> tuple[str, ...]:
    """The slots of a class."""
    known = _SLOTS.get(kind)
    if known is None:
        found = [slot for base in kind.__mro__ for slot in _listed(base.__dict__.get("__slots__", ()))]
        known = _SLOTS[kind] = tuple(name for name in found if not name.startswith("__"))
    return known


def _listed(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
