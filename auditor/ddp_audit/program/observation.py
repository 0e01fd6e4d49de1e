"""What the lowering saw at each place: the values of expressions, and the conditions around expressions and statements.

The lowering keeps what matters for hazards and forgets the rest. Rules about the form of any code ask about any place of it, so
that the entry is lowered once more with an observer, which notes all of them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddp_audit.findings import Span
from ddp_audit.program.differing import differs
from ddp_audit.program.model import Guard
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.values import Ext, Func, Obj, Taint, Value, evaluate, options, worlds

if TYPE_CHECKING:
    from typing import Any

    from ddp_audit.program.lowering import Lowering

_MOST_SEEN = 16  # times that a place is noted; a place in a function is reached by each call of it


@dataclass(slots=True)
class Seen:
    """One place: the values that its expression had, and the conditions around it, each time that the lowering came there."""

    values: list[Value] = field(default_factory=list)
    guards: list[tuple[Guard, ...]] = field(default_factory=list)


class Observer:
    """Takes notes of a lowering. `world_size` is that of the job, None where nobody said it."""

    def __init__(self, world_size: int | None = None) -> None:
        self.places: dict[Span, Seen] = {}
        self._world_size = world_size

    def expression(self, lw: Lowering, node: ast.expr, value: Value) -> None:
        """Notes the value of an expression."""
        seen = self._seen(lw, node)
        if len(seen.values) < _MOST_SEEN:
            seen.values.append(value)
            seen.guards.append(lw.conditions())

    def statement(self, lw: Lowering, node: ast.stmt) -> None:
        """Notes that a statement is reached."""
        seen = self._seen(lw, node)
        if len(seen.guards) < _MOST_SEEN:
            seen.guards.append(lw.conditions())

    def reached_by(self, span: Span) -> frozenset[int] | None:
        """The ranks that get to a place, as far as the conditions in which ranks differ say; None where that is not known.

        The job is the one that the user named, or one of two ranks.
        """
        seen = self.places.get(span)
        if seen is None or not seen.guards:
            return None
        size = self._world_size or 2
        found: set[int] = set()
        is_open = False
        for world in (world for world in worlds(self._world_size) if world.world_size == size):
            answers = [_admits(guards, world) for guards in seen.guards]
            if True in answers:
                found.add(world.rank)
            elif None in answers:
                is_open = True
        return None if is_open else frozenset(found)

    def differs(self, span: Span) -> Taint:
        """The reasons for which the value of an expression differs between the ranks of one job; empty where none is known."""
        seen = self.places.get(span)
        values = () if seen is None else seen.values
        return frozenset().union(*(differs(value, worlds(self._world_size)) for value in values))

    def values_on(self, span: Span, rank: int) -> list[Any]:
        """The values of an expression on a rank, one for each time that it was evaluated; MISSING for one that is not known."""
        seen = self.places.get(span)
        size = self._world_size or 2
        world = next((w for w in worlds(self._world_size) if (w.rank, w.world_size) == (rank, size)), None)
        return [] if seen is None or world is None else [evaluate(value, world) for value in seen.values]

    def name(self, span: Span) -> str | None:
        """What an expression stands for by its full name, where it is one thing of a library or of the project; None elsewhere."""
        seen = self.places.get(span)
        names = {_name(option) for value in (seen.values if seen is not None else ()) for option in options(value)}
        return next(iter(names)) if len(names) == 1 else None

    def _seen(self, lw: Lowering, node: ast.expr | ast.stmt) -> Seen:
        return self.places.setdefault(lw.span(node), Seen())


def _admits(guards: tuple[Guard, ...], world: Any) -> bool | None:
    answers = [guard.admits(world) for guard in guards if guard.taint]
    return False if False in answers else None if None in answers else True


def _name(value: Value) -> str | None:
    match value:
        case Ext(name=name):
            return name.removeprefix("builtins.")
        case Func(definition=FunctionInfo() as info):
            owner = f"{info.owner.name}." if info.owner is not None else ""
            return f"{info.frame.source.module}.{owner}{info.name}"
        case Obj(kind="class", cls=ClassInfo() as info):
            return f"{info.frame.source.module}.{info.name}"
    return None


__all__ = ["Observer", "Seen"]
