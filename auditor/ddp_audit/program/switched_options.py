"""What an option that is off by default would have to be for a place to be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ddp_audit.findings import Option
from ddp_audit.program.model import Guard
from ddp_audit.program.values import (
    RANK,
    Const,
    Default,
    Expr,
    Items,
    Made,
    Unknown,
    Value,
    World,
    defaults_in,
    holds,
    truth,
    worlds,
)

_OTHERS = (True, 1, 2, 10, "on", False, 0, -1)  # what an option may be set to; the first that makes a condition hold is named


def the_option(guards: Iterable[Guard]) -> Option | None:
    """The one option whose default all of the guards against defaults contradict; None where they rest on more, or on none."""
    guards = tuple(guards)
    against = [guard for guard in guards if guard.against_default]
    found = {default.name: default for guard in against for default in defaults_in(guard.test)}
    if len(found) != 1 or not all(any(True for _ in defaults_in(guard.test)) for guard in against):
        return None
    (name,) = found
    default = next(value for guard in against for value in default_values(guard.test, name))
    kind = bool if isinstance(default, bool) else None if default is None else type(default)
    asked = [guard.test for guard in guards if guard.polarity and isinstance(guard.test, Unknown)]  # `mode.startswith("gpt2")`
    compared = [value for test in (*asked, *(guard.test for guard in against)) for value in _compared(test, name)]
    others = [
        other for other in (*compared, *_OTHERS) if kind is None or type(other) is kind or (kind is float and type(other) is int)
    ]
    for other in others:
        if all(truth(with_option(g.test, name, other), World(0, 2, 2)) == g.polarity for g in against):
            return Option(name, default, None if default is None else other)
    return Option(name, default, None)


def changes_ranks(guards: Iterable[Guard], option: Option) -> bool:
    """Whether other guards let other ranks pass with the option switched, so that what was judged by its default does not hold."""
    other = True if option.value is None else option.value
    for guard in guards:
        if RANK in guard.test.taint and any(default.name == option.name for default in defaults_in(guard.test)):
            switched = with_option(guard.test, option.name, other)
            if any(holds(guard.test, world) != holds(switched, world) for world in worlds(guard.world_size)):
                return True
    return False


def default_values(value: Value, name: str) -> Iterator[Any]:
    """The values that an overridable default has where `value` was computed from it."""
    match value:
        case Const(value=own, default=Default(name=of), formula=formula) if of == name:
            if formula is None:
                yield own
            else:
                yield from default_values(formula, name)
        case Expr(args=parts) | Items(items=parts):
            for part in parts:
                yield from default_values(part, name)


def _compared(value: Value, name: str) -> Iterator[Any]:
    """The constants that an option is compared with, and those in lists of such."""
    match value:
        case Const(default=Default(name=of), formula=Expr() as formula) if of == name:
            yield from _compared(formula, name)
        case Const(value=own, default=None) if isinstance(own, (str, int, float)):
            yield own
        case Unknown(by=Made(args=parts)) if any(default.name == name for part in parts for default in defaults_in(part)):
            for part in parts:
                yield from _compared(part, name)
        case Expr(args=parts) | Items(items=parts):
            for part in parts:
                yield from _compared(part, name)


def with_option(value: Value, name: str, other: Any) -> Value:
    """The value as it would be with another value of an option."""
    match value:
        case Const(default=Default(name=of), formula=formula) if of == name:
            return Const(value=other) if formula is None else with_option(formula, name, other)
        case Expr(args=args):
            return replace(value, args=tuple(with_option(arg, name, other) for arg in args))
    return value
