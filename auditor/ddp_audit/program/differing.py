"""Whether a value differs between the ranks of one job, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddp_audit.program.values import (
    MISSING,
    RANK,
    UNIFORM,
    Alt,
    Const,
    Expr,
    Items,
    Obj,
    Taint,
    Unknown,
    Value,
    World,
    evaluate,
    join_taint,
    worlds,
)


def differs(value: Value, where: Iterable[World]) -> Taint:
    """The reasons for which a value differs between the ranks of one job: empty where it is computable and equal on all of them."""
    if not value.taint:
        return UNIFORM
    by_job: dict[tuple[int, int], set[Any]] = {}
    for world in where:
        result = evaluate(value, world)
        if result is MISSING:
            return _free_taint(value)
        try:
            by_job.setdefault((world.world_size, world.local_world_size), set()).add(result)
        except TypeError:
            return value.taint
    return value.taint if any(len(results) > 1 for results in by_job.values()) else UNIFORM


def _free_taint(value: Value) -> Taint:
    """Taint of a value that cannot be computed: of the parts of it that do not come out equal on all ranks.

    A comparison with words asks a setting, which only the rank makes differ, unless a condition chose the words. What is None or
    a list asks whether it is there, and that is a matter of what decided so.
    """
    parts: tuple[Value, ...] = ()
    if isinstance(value, Alt) and _may_be_absent(value):
        return value.taint - join_taint(*value.options) | (join_taint(*value.options) & {RANK})
    if isinstance(value, Expr):
        if value.op in ("==", "!=", "in", "not in") and any(_is_words(arg) for arg in value.args):
            return frozenset().union(*map(_taint_of_words, value.args))
        parts = value.args
    elif isinstance(value, Obj) and value.kind == "range" and isinstance(value.info, Value) and isinstance(value.cls, tuple):
        parts = (value.info, *value.cls)
    if not parts:
        return value.taint
    own = value.taint - join_taint(*parts)
    return own.union(*(differs(part, worlds()) for part in parts))


def _taint_of_words(value: Value) -> Taint:
    """Why a value that is compared with words can differ: as a setting by the rank alone, and by what chose or made the words."""
    if isinstance(value, Alt) and value.choice is None:
        return (value.taint - join_taint(*value.options)).union(*map(_taint_of_words, value.options))
    match value:
        case Alt(choice=Value() as test, options=parts) | Expr(op="ifexp", args=(test, *parts)):
            return differs(test, worlds()).union(*map(_taint_of_words, parts))
        case Expr(op="str" | "format" | "int" | "+" | "%", args=parts):
            return frozenset().union(*map(_taint_of_words, parts))
        case Expr(op="==" | "!=" | "<" | "<=" | ">" | ">=" | "and" | "or" | "not" | "bool"):
            return differs(value, worlds())
    return value.taint & {RANK}


def _may_be_absent(value: Alt) -> bool:
    """Whether one of several values is None, and the others are objects, lists, or parts of what a call gave."""
    return any(_is_none(option) for option in value.options) and all(_is_none(o) or _is_part(o) for o in value.options)


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _is_part(value: Value) -> bool:
    taken = isinstance(value, Unknown) and (value.by is None or value.by.name == "[]")
    return taken or isinstance(value, (Items, Obj))


def _is_words(value: Value) -> bool:
    if isinstance(value, Items):
        return bool(value.items) and all(_is_words(item) for item in value.items)
    return isinstance(value, Const) and isinstance(value.value, str)


__all__ = ["differs"]
