"""Nodes of the program's flow: jumps, checks, whole divisions, and names that only some ranks have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ddp_audit.program.nodes.base import Node
from ddp_audit.program.values import Value

if TYPE_CHECKING:
    from ddp_audit.program.presence import Binding


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Jump(Node):
    """break, continue, return, raise or an exit."""

    kind: ClassVar[str] = "jump"
    counts: ClassVar[bool] = False
    what: str
    value: Value | None = None  # what is returned
    code: Value | None = None  # of an exit
    raised: Value | None = None  # an exception or its class


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class Check(Node):
    """`assert`, or `if not ..: raise`."""

    kind: ClassVar[str] = "assert"
    counts: ClassVar[bool] = False
    test: Value  # what has to hold
    raises: bool = False  # written as a condition around a raise


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class FloorDivision(Node):
    """`a // b`, `a //= b` or `int(a / b)`."""

    kind: ClassVar[str] = "floordiv"
    counts: ClassVar[bool] = False
    left: Value
    right: Value
    name: str = ""  # of the variable that is divided in place


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class GuardFunction(Node):
    """A function that asks for the rank is tested as an object, without a call; the target is the function."""

    kind: ClassVar[str] = "guard-function"
    name: str
    enters: Any
    body: Any


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class AbsentName(Node):
    """A name or attribute that only some ranks have assigned is read."""

    kind: ClassVar[str] = "absent"
    name: str
    binding: Binding
    of_object: bool  # an attribute


@dataclass(eq=False, repr=False, kw_only=True, match_args=False)
class AttributeOfNone(Node):
    """An attribute is read of a value that is None where bool(choice) is `polarity`."""

    kind: ClassVar[str] = "absent"
    name: str
    choice: Value
    polarity: bool
    attribute: str
