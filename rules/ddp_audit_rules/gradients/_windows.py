"""Accumulation windows: which backward passes come before a step, and whether it can be taken though none of them was reduced."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddp_audit.findings import Span
from ddp_audit.program.model import Guard, Node, Program
from ddp_audit.program.sync import (
    Switch,
    atoms,
    forwards_behind,
    is_length,
    is_off,
    iterations,
    loop_atom,
    opened,
    passes,
    suppositions,
    switches,
)
from ddp_audit.program.values import DATA, Expr, Value, World


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A backward that comes before a step in the same iteration, with the switches of its forwards and its own guards."""

    backward: Node
    forwards: tuple[tuple[Node, list[Switch]], ...]
    guards: tuple[Guard, ...]

    def unsynced(self, world: World) -> bool | None:
        answers = [is_off(found, world) for _, found in self.forwards]
        return False if False in answers else None if None in answers else True


def passes_before(program: Program, step: Node) -> list[Pass]:
    """The backward passes of wrapped forwards that run before a step in the same iteration of its loops."""
    found: list[Pass] = []
    own = {(g.span, g.text, g.polarity) for g in step.guards}  # the parts of one condition stand at one place
    for backward in program.of("backward"):
        if backward.number > step.number or backward.loops[: len(step.loops)] != step.loops or backward.calls[:1] != step.calls[:1]:
            continue
        forwards = forwards_behind(program, backward)
        if not forwards or any((g.span, g.text, not g.polarity) in own for g in backward.guards):
            continue
        guards = tuple(g for g in backward.guards if (g.span, g.text, g.polarity) not in own)
        found.append(Pass(backward, tuple((f, switches(program, f)) for f in forwards), guards))
    return found


def flags_before_unreduced_steps(program: Program) -> Iterator[Span]:
    """The assignments of the flag by which a step is taken with gradients that were not reduced, which DDP105 reports."""
    for step in program.of("step"):
        before = passes_before(program, step)
        if before and contradiction(program, step, before) is not None:
            yield from (s.place.span for p in before for _, found in p.forwards for s in found if s.place is not None)


def contradiction(program: Program, step: Node, before: list[Pass]) -> dict[str, Any] | None:
    """Values of loop indices, lengths and options under which the step is taken and no pass before it was reduced."""
    shared = {(g.span, g.polarity) for p in before for g in p.backward.guards}
    # A batch that is left out for what is in it (`if not isfinite(loss): continue`) says nothing about the others.
    left_out = {(g.span, g.polarity) for g in step.guards if g.via == "early-exit" and DATA in g.taint}
    guards = tuple(g for g in step.guards if (g.span, g.polarity) not in shared | left_out)
    of_switches = _atoms_of([s.test for p in before for _, found in p.forwards for s in found if s.test is not None])
    of_guards = _atoms_of([g.test for g in guards] + [g.test for p in before for g in p.guards])
    if of_switches is None or of_guards is None:
        return None
    if any(not (name in of_switches or is_length(name) or name.startswith(("option ", "loop:"))) for name in of_guards):
        return None
    names = of_switches | of_guards
    if any(_set_in_loop(program, step, p, name) for p in before for name in of_switches):
        return None
    for p in before:
        for loop in p.backward.loops:
            if loop.count is not None and loop_atom(loop, names):
                names |= atoms(opened(loop.count)) or set()
    defaults = {f"option {name}": value.value for name, value in program.config.items()}
    for supposed in suppositions(names, defaults):
        if _contradicts(step, before, guards, supposed, names):
            return dict(supposed)
    return None


def _set_in_loop(program: Program, step: Node, one: Pass, name: str) -> bool:
    """Whether a name gets its value in a loop that ends before the step: what it is at the last backward is not known then."""
    if not name.isidentifier():
        return False
    assigned = re.compile(rf"\bfor\b.*\b{name}\b.*\bin\b|\b{name}\s*:?=(?!=)")
    return any(
        assigned.search(program.line(loop.span.path, line))
        for loop in one.backward.loops[len(step.loops) :]
        for line in range(loop.span.line, loop.span.end_line + 1)
    )


def _contradicts(step: Node, before: list[Pass], guards: tuple[Guard, ...], supposed: dict[str, Any], names: set[str]) -> bool:
    world = World(0, 2, 2, supposed)
    for loop in step.loops:
        index, count = loop_atom(loop, names), iterations(loop, world, names)
        if index is not None and count is not None and supposed[index] >= count:
            return False
    if passes(guards, world) is not True:
        return False
    ran = False
    for p in before:
        last = dict(supposed)
        for loop in p.backward.loops[len(step.loops) :]:
            index = loop_atom(loop, names)
            if index is not None:
                count = iterations(loop, world, names)
                if count is None or count < 1:
                    return False
                last[index] = supposed[index] = count - 1
        there = World(0, 2, 2, last)
        reached = passes(p.guards, there)
        if reached is None:
            return False
        if reached:
            if p.unsynced(there) is not True:
                return False
            ran = True
    return ran


def _atoms_of(values: list[Any]) -> set[str] | None:
    names: set[str] = set()
    for value in values:
        found = atoms(opened(value))
        if found is None:
            return None
        names |= found
    return names


def never(step: Node) -> bool:
    """Whether the conditions around a step exclude each other, as where a caller's arm says no and the callee asks again."""
    demanded = [pair for guard in step.guards for pair in _demanded(guard.test, guard.polarity)]
    if any(one == other and wanted is not denied and one.text for one, wanted in demanded for other, denied in demanded):
        return True
    names = _atoms_of([g.test for g in step.guards])
    answers = {passes(step.guards, World(0, 2, 2, supposed)) for supposed in suppositions(names or set(), {})} if names else set()
    return answers == {False}


def _demanded(test: Value, wanted: bool) -> Iterator[tuple[Value, bool]]:
    """What a condition asks of itself, and of its operands, where it asks something of each."""
    yield test, wanted
    match test:
        case Expr(op="not", args=(inner,)):
            yield from _demanded(inner, not wanted)
        case Expr(op="and" | "or" as op, args=args) if (op == "and") is wanted:
            for arg in args:
                yield from _demanded(arg, wanted)
