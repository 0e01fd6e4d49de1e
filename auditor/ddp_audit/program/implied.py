"""Conditions that others settle: after `if not sharded and not is_rank0: return`, every rank is there where `sharded` holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ddp_audit.program.model import Guard
from ddp_audit.program.values import Const, Expr, Value, World, truth

Facts = Sequence[tuple[Value, bool]]


def without_implied(guards: Sequence[Guard], worlds: Sequence[World]) -> tuple[Guard, ...]:
    """The guards less those in which ranks could differ but which hold on all ranks where the others of equal value hold."""
    if not any(g.test.taint for g in guards):
        return tuple(guards)
    facts = [(g.test, g.polarity) for g in guards if not g.test.taint]
    if not facts:
        return tuple(guards)
    return tuple(g for g in guards if not g.test.taint or not _settled(g, facts, worlds))


def _settled(guard: Guard, facts: Facts, worlds: Sequence[World]) -> bool:
    parts = list(_parts(guard.test))
    used = [(test, said) for test, said in facts if any(part == test for part in parts)]
    return bool(used) and all(_holds(guard.test, world, used) == guard.polarity for world in worlds)


def _parts(value: Value) -> Iterator[Value]:
    """A condition and the conditions that `not`, `and` and `or` make it of."""
    yield value
    if isinstance(value, Const) and value.formula is not None:  # `not args.x`, folded with the default
        value = value.formula
    if isinstance(value, Expr) and value.op in ("not", "and", "or"):
        for argument in value.args:
            yield from _parts(argument)


def _holds(value: Value, world: World, facts: Facts) -> bool | None:
    """What a condition says on a rank where some conditions are known; None where that is open."""
    for test, said in facts:
        if value == test:
            return said
    if isinstance(value, Const) and value.formula is not None and any(test in _parts(value) for test, _ in facts):
        value = value.formula
    if isinstance(value, Expr) and value.op in ("not", "and", "or"):
        answers = [_holds(argument, world, facts) for argument in value.args]
        if value.op == "not":
            return None if answers[0] is None else not answers[0]
        decisive = value.op == "or"
        if decisive in answers:
            return decisive
        return None if None in answers else not decisive
    return truth(value, world)
