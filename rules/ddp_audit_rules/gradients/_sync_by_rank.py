"""Micro-batches that some ranks reduce and others do not, because the rank or local data decides about synchronisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ddp_audit.tree.nodes import Backward, Forward, Guard, Loop, Node, Program, SyncFlag
from ddp_audit.tree.questions import (
    Switch,
    atoms,
    flags_of,
    forwards_behind,
    group_of,
    is_off,
    iterations,
    local_taint,
    loop_atom,
    members,
    opened,
    passes,
    suppositions,
    worlds_by_size,
)
from ddp_audit.tree.values import CLOCK, DATA, RANK, Taint, Value, World, truth
from ddp_audit_rules.facts.training import wrap_behind

_MOST = 400  # suppositions that are tried for one group of forwards
_LOCAL = frozenset({DATA, CLOCK})


@dataclass(frozen=True, slots=True, eq=False)
class Parted:
    """A switch that is on for some ranks in one pass, and off for others; `reason` is why it differs.

    `off` are the ranks of one job that do not reduce in that pass, and `others` those that do; both are empty where local data
    decides. `flags` are all assignments that have a part in it.
    """

    place: Node
    text: str
    line: int
    forward: Forward
    reason: str
    off: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    flags: tuple[SyncFlag, ...] = ()


def parted_passes(program: Program) -> Iterator[Parted]:
    """One for each loop whose wrapped forwards are synchronised on some ranks only."""
    groups: dict[tuple[Any, tuple[Loop, ...]], list[Forward]] = {}
    trained = {f.number: f for backward in program.of(Backward) for f in forwards_behind(program, backward)}
    for forward in sorted(trained.values(), key=lambda node: node.number):
        if forward.object is not None:
            groups.setdefault((forward.object.key, forward.loops), []).append(forward)
    for forwards in groups.values():
        found = _by_rank(program, forwards) or _by_data(program, forwards)
        if found is not None:
            yield found


def _by_rank(program: Program, forwards: Sequence[Forward]) -> Parted | None:
    """The first position of the loops at which the ranks of a job are known to disagree."""
    flags = _flags(program, forwards)
    tests = [f.value for f in flags] + [b.test for f in forwards for b in f.no_sync if b.test is not None]
    guards = [g for node in (*flags, *forwards) for g in node.guards]
    if not any(RANK in value.taint for value in (*tests, *(g.test for g in guards))):
        return None
    own = _own_guards(flags, forwards)
    names = _names([*tests, *(g.test for g in own)])
    if names is None:
        return None
    loops = forwards[0].loops
    for loop in loops:
        if loop.count is not None and loop_atom(loop, names):
            names |= atoms(opened(loop.count)) or set()
    defaults = {f"option {name}": value.value for name, value in program.config.items()}
    group = group_of(wrap) if (wrap := wrap_behind(program, forwards[0])) is not None else None
    for count, supposed in enumerate(suppositions(names, defaults)):
        if count >= _MOST:
            break
        for job in worlds_by_size(program.world_size):
            ranks = [World(w.rank, w.world_size, w.local_world_size, supposed) for w in job]
            if not all(_is_inside(loop, world, names, supposed) for loop in loops for world in ranks):
                continue
            if any(len({iterations(loop, world, names) for world in ranks}) > 1 for loop in loops):
                continue  # each rank may reduce the last of its own number of passes
            found = _disagreement(program, forwards, flags, own, ranks, group)
            if found is not None:
                return found
    return None


def _is_inside(loop: Loop, world: World, names: set[str], supposed: dict[str, Any]) -> bool:
    index = loop_atom(loop, names)
    count = iterations(loop, world, names)
    return index is None or count is None or supposed[index] < count


def _disagreement(
    program: Program,
    forwards: Sequence[Forward],
    flags: Sequence[SyncFlag],
    own: Sequence[Guard],
    ranks: Sequence[World],
    group: Value | None,
) -> Parted | None:
    states = {world.rank: _states(program, forwards, flags, own, world) for world in ranks}
    for world in ranks:
        inside = members(group, world)
        together = sorted(inside & states.keys()) if inside is not None else []
        known = {rank: state for rank in together if (state := states[rank]) is not None}
        if len(together) < 2 or len(known) < len(together) or len({len(state) for state in known.values()}) > 1:
            continue
        for position in range(len(known[together[0]])):
            off = tuple(rank for rank in together if known[rank][position][1])
            if off and len(off) < len(together):
                forward = known[off[0]][position][0]
                others = tuple(rank for rank in together if rank not in off)
                return _blamed(program, forward, flags, "rank", off, others)
    return None


def _states(
    program: Program, forwards: Sequence[Forward], flags: Sequence[SyncFlag], own: Sequence[Guard], world: World
) -> list[tuple[Forward, bool]] | None:
    """Each forward that a rank makes in one pass, and whether synchronisation is off in it; None where that is not known."""
    found: list[tuple[Forward, bool]] = []
    for forward in forwards:
        reached = passes(tuple(g for g in forward.guards if RANK in g.taint), world)
        if reached is None:
            return None
        if not reached:
            continue
        blocks = [
            Switch(block.test, block.polarity, None, block.span.line, "")
            for block in forward.no_sync
            if block.wrapper is None or forward.object is None or block.wrapper.key == forward.object.key
        ]
        off = is_off(blocks, world)
        switched = _flag_is_off(forward, flags, own, world)
        if off is None or switched is None:
            return None
        found.append((forward, off or switched))
    return found


def _flag_is_off(forward: Forward, flags: Sequence[SyncFlag], own: Sequence[Guard], world: World) -> bool | None:
    """What the assignments before a forward leave the flag at; None where a pass before may have decided."""
    conditional = any(RANK not in g.taint for flag in flags for g in flag.guards if g in own)
    off: bool | None = None if conditional else False
    for flag in flags:
        if flag.number > forward.number:
            break
        reached = passes(tuple(g for g in flag.guards if g in own), world)
        if reached is False:
            continue
        says = truth(opened(flag.value), world)
        off = None if says is None or reached is None else not says
    return off


def _flags(program: Program, forwards: Sequence[Forward]) -> list[SyncFlag]:
    """The assignments of the flag before the forwards; none where one comes after them, and is for another pass."""
    loops = forwards[0].loops
    flags = [n for n in flags_of(program, forwards[0]) if n.loops == loops[: len(n.loops)]]
    late = any(flag.number > forwards[-1].number and flag.loops for flag in flags)
    return [] if late else flags


def _own_guards(flags: Sequence[SyncFlag], forwards: Sequence[Forward]) -> list[Guard]:
    """The conditions that decide about an assignment or a forward, and not about all of them."""
    nodes = (*flags, *forwards)
    shared = {(g.span, g.polarity) for g in nodes[0].guards}
    for node in nodes[1:]:
        shared &= {(g.span, g.polarity) for g in node.guards}
    found = [g for node in flags for g in node.guards if (g.span, g.polarity) not in shared]
    return found + [g for node in forwards for g in node.guards if RANK in g.taint and (g.span, g.polarity) not in shared]


def _names(values: Sequence[Value]) -> set[str] | None:
    names: set[str] = set()
    for value in values:
        found = atoms(opened(value))
        if found is None:
            return None
        names |= found
    return names


def _by_data(program: Program, forwards: Sequence[Forward]) -> Parted | None:
    """A flag or a no_sync() block whose condition is computed from this rank's data."""
    flags = _flags(program, forwards)
    for forward in forwards:
        for block in forward.no_sync:
            reason = _local(block.test)
            if reason:
                return Parted(forward, program.line(block.span.path, block.span.line), block.span.line, forward, reason)
    for flag in flags:
        reason = _local(flag.value)
        if reason:
            return Parted(
                flag, program.line(flag.span.path, flag.span.line), flag.span.line, forwards[0], reason, flags=tuple(flags)
            )
    return None


def _local(test: Value | None) -> str:
    taint: Taint = frozenset() if test is None else local_taint(test)
    return " and ".join(sorted(taint)) if taint and taint <= _LOCAL else ""


def _blamed(
    program: Program, forward: Forward, flags: Sequence[SyncFlag], reason: str, off: tuple[int, ...], others: tuple[int, ...]
) -> Parted:
    """The switch that differs: a flag or a block that asks for the rank itself, else the last one."""
    asking = [f for f in flags if RANK in f.value.taint or any(RANK in g.taint for g in f.guards)]
    if asking:
        flag = asking[-1]
        return Parted(
            flag, program.line(flag.span.path, flag.span.line), flag.span.line, forward, reason, off, others, tuple(flags)
        )
    if forward.no_sync:
        span = forward.no_sync[-1].span
        return Parted(forward, program.line(span.path, span.line), span.line, forward, reason, off, others, tuple(flags))
    return Parted(flags[-1] if flags else forward, forward.text, forward.span.line, forward, reason, off, others, tuple(flags))
