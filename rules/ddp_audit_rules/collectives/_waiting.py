"""Long work on some ranks while the others wait in a collective: what DDP211 reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.tree.nodes import Collective, Forward, Guard, Init, LongWork, Node, Program, Wrap
from ddp_audit.tree.questions import group_of, hints_at, is_default, is_kind, says
from ddp_audit.tree.values import FILES, RANK, Const, Made, Unknown, Value, World, evaluate, holds, worlds
from ddp_audit_rules.collectives._regions import is_together

# In the order in which timedelta takes them.
_UNITS = {"days": 86400, "seconds": 1, "microseconds": 1e-6, "milliseconds": 0.001, "minutes": 60, "hours": 3600, "weeks": 604800}
DEFAULTS = {"nccl": 600.0, "gloo": 1800.0}


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Work of some ranks, what it is, and where the others wait. `limit` is the group's timeout in seconds."""

    node: Node
    guard: Guard | None
    what: str
    region: Node | None
    limit: float
    sure: bool  # known to be longer than the timeout
    short: bool  # mostly ends in time: an evaluation, or what a framework's own pattern does


def waits(program: Program) -> Iterator[Wait]:
    """Every such work after the process group was made."""
    starts = list(program.of(Init))
    if not starts:
        yield from _in_frameworks(program)
        return
    limit, given = _limit(starts[0])
    for node in program.of(LongWork):
        seconds = node.seconds
        sure = seconds is not None and limit is not None and seconds > limit
        guard = _guard(node)
        unknown = seconds is None and not given and not _is_cached(node)
        if node.number < starts[0].number or limit is None or not (sure or unknown) or not (guard or node.first):
            continue
        region = _where_others_wait(program, node)
        if region is not None or node.first:
            yield Wait(node, guard, node.what, region, limit, sure, False)
    for forward in program.of(Forward):
        guard = _guard(forward)
        if guard is None or guard.loops >= len(forward.loops) or given or limit is None or forward.number < starts[0].number:
            continue
        region = _where_others_wait(program, forward)
        if region is not None:
            yield Wait(forward, guard, "evaluates in a loop", region, limit, False, True)


def _in_frameworks(program: Program) -> Iterator[Wait]:
    """Contexts of frameworks that let the main process through first, where no other timeout is given."""
    if not program.frameworks.lets_first_through or hints_at(program, "gives-timeout"):
        return
    for node in program.of(LongWork):
        if node.first and node.seconds is None and not _is_cached(node):
            yield Wait(node, _guard(node), node.what, None, DEFAULTS["nccl"], False, True)


def _limit(init: Init) -> tuple[float | None, bool]:
    """The timeout of the default group in seconds, None where it is not known; and whether the program gives one."""
    value = init.args.get("timeout")
    if value is None or (isinstance(value, Const) and value.value is None):
        backend = init.args.get("backend")
        name = str(backend.value) if isinstance(backend, Const) else ""
        return DEFAULTS.get(name, DEFAULTS["gloo"]), False
    return _seconds(value), True


def _seconds(value: Value) -> float | None:
    if not isinstance(value, Unknown) or value.by is None or not is_kind(value, "duration"):
        return None
    by: Made = value.by
    parts = {**dict(zip(_UNITS, by.args, strict=False)), **dict(by.named)}
    total = 0.0
    for unit, amount in parts.items():
        number = evaluate(amount, World(0, 2, 2))
        if not isinstance(number, (int, float)) or unit not in _UNITS:
            return None
        total += number * _UNITS[unit]
    return total


def _guard(node: Node) -> Guard | None:
    """The rank test that lets only a few ranks to the work, where that is known."""
    for guard in node.guards:
        is_split = guard.taint == {RANK} and {holds(guard.test, w) for w in worlds(guard.world_size)} == {True, False}
        if is_split and guard.ranks().startswith("only"):
            return guard
    return None


def _is_cached(node: Node) -> bool:
    """Whether the work is done only where its result is not there yet."""
    return any(FILES in g.test.taint or says(g.text, "only-if-missing") for g in node.guards)


def _where_others_wait(program: Program, work: Node) -> Node | None:
    """The first thing after the work, or before it in a loop around, that needs all ranks; None where another group waits first."""
    own = {(g.span, g.polarity) for g in work.guards if RANK in g.test.taint}
    around = set(map(id, work.loops))
    after = [n for n in program.nodes if n.number > work.number]
    again = [n for n in program.nodes if n.number < work.number and around & set(map(id, n.loops))]
    for node in (*after, *again):
        if own & {(g.span, g.polarity) for g in node.guards}:
            continue
        group = group_of(node) if isinstance(node, Collective) else None
        if group is not None and not is_default(group):
            return None
        if is_together(program, node) or (isinstance(node, Wrap) and node.style == "ddp"):
            return node
    return None
