"""Enumerations of an interpreted run. A member of one whose members are numbers or texts too is that number or text."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls
from ddp_audit.explore.exact.contents import first_unknown, unknown
from ddp_audit.explore.exact.values import MISSING, PLAIN, Class, Function, Lib, Unknown, error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddp_audit.explore.exact.interpreter import Interpreter

_PURE = frozenset({"enum.Enum", "enum.Flag"})
_MIXED = frozenset({"enum.IntEnum", "enum.StrEnum", "enum.IntFlag", "enum.ReprEnum"})


@dataclass(slots=True, eq=False)
class Member:
    """A member of an enumeration: equal to itself alone."""

    cls: Class
    name: str
    value: Any

    def attribute(self, it: Interpreter, name: str) -> Any:
        """Its name and value, a method of its class, or another member."""
        from_class = self.cls.find(name)
        if name in ("name", "_name_"):
            return self.name
        if name in ("value", "_value_"):
            return self.value
        return Unknown(name) if from_class is MISSING else calls.bound(it, from_class, self)


@dataclass(slots=True, eq=False)
class Auto:
    """`enum.auto()`, until its class is made."""


def is_enum(cls: Class) -> bool:
    """Whether a class is an enumeration."""
    return bool(cls.outside_bases() & (_PURE | _MIXED))


def fill(cls: Class, node: ast.ClassDef) -> None:
    """Makes members of what the body of an enumeration sets."""
    outside, number = cls.outside_bases(), 0
    mixed = bool(outside & _MIXED) or bool(outside & {"builtins.str", "builtins.int"})
    for statement in node.body:
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            if not isinstance(target, ast.Name) or target.id.startswith("_"):
                continue
            value = cls.namespace.get(target.id)
            if isinstance(value, Auto):
                number = number * 2 or 1 if "enum.Flag" in outside or "enum.IntFlag" in outside else number + 1
                value = target.id.lower() if "enum.StrEnum" in outside else number
            elif type(value) is int:
                number = value
            cls.namespace[target.id] = value if mixed or isinstance(value, (Function, Lib)) else Member(cls, target.id, value)
            cls.members[target.id] = cls.namespace[target.id]


def by_value(it: Interpreter, cls: Class, args: list[Any]) -> Any:
    """`Kind(value)`."""
    value = args[0] if args else Unknown()
    if isinstance(value, Member):
        return value
    if first_unknown(value) is not None or not isinstance(value, PLAIN):
        return unknown(value, why="a member")
    for member in members(cls):
        held = member.value if isinstance(member, Member) else member
        if isinstance(held, PLAIN) and held == value:
            return member
    raise error("ValueError", f"{value!r} is not a valid {cls.name}")


def members(cls: Class) -> Iterator[Any]:
    """The members of an enumeration, in order."""
    for each in reversed(cls.lineage()):
        yield from each.members.values()


__all__ = ["Auto", "Member", "by_value", "fill", "is_enum", "members"]
