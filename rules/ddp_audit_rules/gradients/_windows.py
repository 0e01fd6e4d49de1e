"""Accumulation windows: which backward passes come before a step, and whether it can be taken though none of them was reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, Guard, Node, Program, Step
from ddp_audit.tree.questions import (
    Switch,
    atoms,
    forwards_behind,
    is_length,
    is_off,
    iterations,
    late_flags,
    loop_atom,
    opened,
    passes,
    stored_within,
    suppositions,
    switches,
)
from ddp_audit.tree.values import DATA, Expr, Value, World


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
    for backward in program.of(Backward):
        if backward.number > step.number or backward.loops[: len(step.loops)] != step.loops:
            continue
        if not step.loops and backward.calls[:1] != step.calls[:1]:  # perhaps of a function that nothing calls
            continue
        forwards = forwards_behind(program, backward)
        if not forwards or any((g.span, g.text, not g.polarity) in own for g in backward.guards):
            continue
        guards = tuple(g for g in backward.guards if (g.span, g.text, g.polarity) not in own)
        found.append(Pass(backward, tuple((f, switches(program, f)) for f in forwards), guards))
    return found


def flags_before_unreduced_steps(program: Program) -> Iterator[Span]:
    """The assignments of the flag by which a step is taken with gradients that were not reduced, which DDP105 reports."""
    for step in program.of(Step):
        before = passes_before(program, step)
        if before and contradiction(program, step, before) is not None and not is_surely_reduced(program, step, before):
            yield from (s.place.span for p in before for _, found in p.forwards for s in found if s.place is not None)


def wrongly_late_flags(program: Program) -> list[tuple[Node, Node, Node]]:
    """Assignments of the flag between a forward and its backward, but for those that are right for the forward of the next pass."""
    right: set[int] = set()
    for step in program.of(Step):
        before = passes_before(program, step)
        if before and is_surely_reduced(program, step, before):
            right |= {s.place.number for p in before for _, found in p.forwards for s in found if s.place is not None and s.carried}
    return [found for found in late_flags(program) if found[0].number not in right]


def contradiction(program: Program, step: Node, before: list[Pass]) -> dict[str, Any] | None:
    """Values of loop indices, lengths and options under which the step is taken and no pass before it was reduced.

    The options keep their defaults where these show it.
    """
    asked = _asked(program, step, before)
    return None if asked is None else next((said for said, wrong in _trials(program, step, before, *asked) if wrong), None)


def is_surely_reduced(program: Program, step: Node, before: list[Pass]) -> bool:
    """Whether, with the defaults of all options, some pass is reduced before each such step at every position that is tried."""
    asked = _asked(program, step, before)
    if asked is None:
        return False
    answers = [wrong for said, wrong in _trials(program, step, before, *asked) if not flipped(program, said)]
    return any(wrong is False for wrong in answers) and True not in answers


def flipped(program: Program, supposed: dict[str, Any]) -> list[str]:
    """The options that a supposition takes otherwise than their defaults."""
    defaults = _defaults(program)
    return [name for name, value in supposed.items() if name.startswith("option ") and value != defaults.get(name)]


def _asked(program: Program, step: Node, before: list[Pass]) -> tuple[tuple[Guard, ...], set[str]] | None:
    """The guards of the step alone and what is to be supposed; None where something cannot be."""
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
    return guards, names


def _trials(
    program: Program, step: Node, before: list[Pass], guards: tuple[Guard, ...], names: set[str]
) -> Iterator[tuple[dict[str, Any], bool | None]]:
    """Suppositions, those with the defaults of all options first, and for each whether the step is taken with nothing reduced."""
    defaults = _defaults(program)
    numbers = {name: value for name, value in defaults.items() if name in names and type(value) in (int, float)}
    for supposed in suppositions(names - set(numbers), defaults) if numbers else ():
        said = {**supposed, **numbers}
        yield said, _contradicts(step, before, guards, said, names)
    for supposed in suppositions(names, defaults):
        yield supposed, _contradicts(step, before, guards, supposed, names)


def _defaults(program: Program) -> dict[str, Any]:
    return {f"option {name}": value.value for name, value in program.config.items()}


def _set_in_loop(program: Program, step: Node, one: Pass, name: str) -> bool:
    """Whether a name gets its value in a loop that ends before the step: what it is at the last backward is not known then."""
    if not name.isidentifier():
        return False
    loops = [loop.span for loop in one.backward.loops[len(step.loops) :]]
    return any(name in stored_within(program, span.path, span.line, span.end_line) for span in loops)


def _contradicts(
    step: Node, before: list[Pass], guards: tuple[Guard, ...], supposed: dict[str, Any], names: set[str]
) -> bool | None:
    """Whether the step is taken and no pass before it was reduced; None where it is not taken, or that is not known."""
    world = World(0, 2, 2, supposed)
    for loop in step.loops:
        index, count = loop_atom(loop, names), iterations(loop, world, names)
        if index is not None and count is not None and supposed[index] >= count:
            return None
    if passes(guards, world) is not True:
        return None
    ran, known = False, True
    for p in before:
        last = dict(supposed)
        for loop in p.backward.loops[len(step.loops) :]:
            index = loop_atom(loop, names)
            if index is not None:
                count = iterations(loop, world, names)
                if count is None or count < 1:
                    return None
                last[index] = supposed[index] = count - 1
        there = World(0, 2, 2, last)
        reached = passes(p.guards, there)
        if reached is None:
            return None
        if reached:
            unsynced = p.unsynced(there)
            if unsynced is False:
                return False
            known, ran = known and unsynced is True, True
    return True if ran and known else None


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
