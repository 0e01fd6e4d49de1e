"""Names and attributes that exist on some ranks only: bound under a rank test, or None on the other ranks."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddp_audit.findings import Span
from ddp_audit.program.model import Guard
from ddp_audit.program.nodes import AbsentName, AttributeOfNone
from ddp_audit.program.slots import Key
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.values import RANK, Alt, Const, Ext, Obj, Value, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


@dataclass(slots=True, eq=False)
class Binding:
    """How a variable or attribute comes to be: the rank tests before each of its assignments, or `plain` where one has none."""

    name: str
    sites: list[tuple[Guard, ...]] = field(default_factory=list)
    plain: bool = False
    lines: set[int] = field(default_factory=set)  # of the tests, which are distinguished by them before anything is compared
    tests: set[tuple[Span, bool]] = field(default_factory=set)

    def add(self, guards: tuple[Guard, ...]) -> None:
        """Adds an assignment under some rank tests."""
        self.sites.append(guards)
        self.lines.update(g.span.line for g in guards)
        self.tests.update((g.span, g.polarity) for g in guards)

    def is_under(self, guard: Guard) -> bool:
        """Whether one of the assignments stands under a condition."""
        return guard.span.line in self.lines and (guard.span, guard.polarity) in self.tests


def bound(lw: Lowering, key: Key) -> None:
    """Notes an assignment. One to what exists already says nothing new.

    What is assigned while the object is made, by its constructor or by what that calls, every rank has that has the object; a rank
    that raised an exception before comes to no later use, unless it is caught.
    """
    known = lw.bindings.get(key)
    since = lw.guards[lw.constructing.get(key[0], 0) :]
    guards = tuple(g for g in since if RANK in g.test.taint and not (g.raised and not lw.tries))
    if known is None:
        if not guards or lw.state.get(key) is not None:
            return
        known = lw.bindings[key] = Binding(key[1])
    if not guards:
        known.plain = True
    elif len(known.sites) < 20:
        known.add(guards)


def read(lw: Lowering, key: Key, node: ast.AST, target: Obj | None = None) -> None:
    """Notes a read of what may not exist on this rank."""
    known = lw.bindings.get(key)
    if known is None or known.plain or lw.asking:
        return
    if target is not None and (
        not isinstance(target.cls, ClassInfo) or target.cls.outside_bases() - {"torch.nn.Module", "builtins.object"}
    ):
        return
    if target is not None and isinstance(target.cls, ClassInfo) and has_default(lw, target.cls, known.name):
        return
    if not any(known.is_under(guard) for guard in lw.guards):
        lw.emit(node, AbsentName(name=known.name, binding=known, of_object=target is not None))


def has_default(lw: Lowering, info: ClassInfo, attr: str) -> bool:
    """Whether a class, or one that it descends from, gives an attribute to all its objects, or may do so."""
    for cls in info.lineage():
        if lw.state.get((("class", cls.frame.source.path, cls.name), attr)) is not None:
            return True
        if not all(isinstance(option, (Obj, Ext)) for base in cls.bases for option in options(base)):
            return True  # `class Arguments(*PARTS)`
    return False


def read_of_none(lw: Lowering, owner: Value, attr: str, node: ast.AST) -> None:
    """Notes an attribute that is read of a value which is None on the ranks of one side of a rank test."""
    match owner:
        case Alt(options=(then, orelse), choice=Value() as choice) if RANK in choice.taint and not lw.asking:
            none = [isinstance(option, Const) and option.value is None for option in (then, orelse)]
            if none[0] != none[1]:
                lw.emit(node, AttributeOfNone(name=owner.text or "it", choice=choice, polarity=none[1], attribute=attr))
