"""What break, continue and return carry with them: flags and counters that were assigned on the way out.

An arm that leaves does not join what follows it in its block; what it assigned holds where the loop or the call goes on. Objects
are as what follows the arm has them: who leaves early with another one is the exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddp_audit.program.operations import operation
from ddp_audit.program.slots import Key, Slots
from ddp_audit.program.state import merge_value
from ddp_audit.program.values import Alt, Const, Expr, Unknown, Value, join_taint

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_PLAIN = (Const, Expr, Unknown)


@dataclass(frozen=True, slots=True, eq=False)
class Exit:
    """One way out: what was assigned on it, and the condition under which it is taken."""

    what: str  # break, continue or return
    assigned: dict[Key, Value]
    condition: Value


@dataclass(slots=True, eq=False)
class Left:
    """A loop or a call that is running: the state and the number of guards at its start, and the ways out so far."""

    loop: bool
    base: Slots
    guards: int
    exits: list[Exit] = field(default_factory=list)


@contextmanager
def collected(lw: Lowering, *, loop: bool) -> Iterator[list[Exit]]:
    """The ways out of the body of a loop, or of a function, that is lowered meanwhile."""
    lw.left.append(Left(loop, lw.state, len(lw.guards)))
    yield lw.left[-1].exits
    lw.left.pop()


def note(lw: Lowering, what: str) -> None:
    """Notes a break, continue or return that is about to leave."""
    around = next((one for one in reversed(lw.left) if one.loop == (what != "return")), None)
    if around is None or lw.state is around.base:
        return
    guards = lw.guards[around.guards :]
    if any(guard.against_default for guard in guards):
        return  # what follows is judged as the defaults have it
    assigned: dict[Key, Value] = {}
    layer: Slots | None = lw.state
    while layer is not None and layer is not around.base:
        for key in layer.changed():
            value = layer.get(key)
            if key not in assigned and isinstance(value, _PLAIN):
                assigned[key] = value
        layer = layer.base
    if layer is None or not assigned:
        return
    condition: Value = Unknown(taint=join_taint(*(guard.test for guard in guards)))
    if len(guards) == 1:
        condition = guards[0].test if guards[0].polarity else operation("not", guards[0].test)
    around.exits.append(Exit(what, assigned, condition))


def rejoin(lw: Lowering, exits: list[Exit], what: str, but: object = None) -> None:
    """Joins what the ways out assigned with the state in which the loop or the call goes on; not the variables of a frame."""
    for one in exits:
        if one.what == what:
            for key, value in one.assigned.items():
                now = lw.state.get(key) if key[0] != but else None
                if now is not None and now is not value and _is_plain(now):
                    lw.state[key] = merge_value(one.condition, value, now)


def _is_plain(value: Value) -> bool:
    return isinstance(value, _PLAIN) or (isinstance(value, Alt) and all(map(_is_plain, value.options)))
