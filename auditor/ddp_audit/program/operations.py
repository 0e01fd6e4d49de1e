"""Values made of others: operations and branches, with a bound on how much one value may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ddp_audit.folding import TooLarge
from ddp_audit.program.values import (
    DATA,
    MISSING,
    RANK,
    UNIFORM,
    Alt,
    Bound,
    Const,
    Expr,
    Ext,
    Items,
    Made,
    Obj,
    Taint,
    Unknown,
    Value,
    World,
    constant,
    defaults_in,
    evaluate,
    folded,
    is_filled,
    join_deps,
    join_taint,
    options,
)

TOO_LARGE = "too large"  # the name of what made an unknown that is not a small constant; the argument says of what kind it is
_MOST_PARTS = 4_096  # of a value, with those of its parts
_COMPOSED = (Expr, Items, Alt, Obj)


def operation(op: str, *args: Value, text: str = "") -> Value:
    """`op` over `args`, folded where all are constants that rest on one default at most (a launch may change any of several)."""
    args = tuple(_unbound(a) if isinstance(a, Bound) else a for a in args)
    taint, deps = join_taint(*args), join_deps(*args)
    result = Expr(op=op, args=args, taint=taint, deps=deps, text=text)
    if args and all(isinstance(a, Const) for a in args) and len({d.name for a in args for d in defaults_in(a)}) < 2:
        try:
            found = evaluate(result, World(0, 1, 1)) if op in ("and", "or", "ifexp") else folded(op, [constant(a) for a in args])
        except TooLarge as reason:
            return too_large(str(reason), taint, deps, text)
        except (TypeError, ValueError, ArithmeticError, LookupError):
            found = MISSING
        if found is not MISSING:
            default = next((d for a in args for d in defaults_in(a)), None)
            return Const(value=found, default=default, formula=None if default is None else result, text=text)
        return Unknown(taint=taint, deps=deps, text=text)
    if op in ("not", "bool") and is_filled(args[0]):
        return Const(value=op == "bool", text=text)  # a display with elements, whatever they are
    computable = (Const, Expr, Items, Unknown, Alt)
    if not all(isinstance(a, computable) for a in args) or _depth(result) > 12:
        return Unknown(taint=taint, deps=deps, text=text, by=Made(op, args))
    return bounded(result)


def bounded(value: Value) -> Value:
    """The value, or one that stands for it where its parts are so many that nothing should walk through them.

    A display keeps its number of elements, and one unknown element stands for all of them.
    """
    if _parts(value) <= _MOST_PARTS:
        return value
    if isinstance(value, Items) and not value.many:
        element = Unknown(taint=value.taint, deps=value.deps)
        if value.keys is None:
            return replace(value, items=(element,), many=True, count=Const(value=len(value.items)))
    return too_large(f"a value of more than {_MOST_PARTS:,} parts", value.taint, value.deps, value.text)


def bounded_list(value: Items) -> Items:
    """A list, or one of which only the kind and the reasons to differ are kept where it has too many parts."""
    made = bounded(value)
    element = Unknown(taint=value.taint, deps=value.deps)
    return made if isinstance(made, Items) else replace(value, items=(element,), keys=None, many=True)


def why_too_large(value: Value) -> str:
    """Of what kind a result was that is unknown for its size; empty for other values."""
    if not isinstance(value, Unknown) or value.by is None or value.by.name != TOO_LARGE:
        return ""
    return str(constant(value.by.args[0]))


def too_large(reason: str, taint: Taint = UNIFORM, deps: frozenset[int] = frozenset(), text: str = "") -> Unknown:
    """An unknown that is not a small constant."""
    return Unknown(taint=taint, deps=deps, text=text, by=Made(TOO_LARGE, (Const(value=reason),)))


def _parts(value: Value) -> int:
    """How many values are in a value, each as often as a walk meets it, counted up to a little more than is allowed."""
    count, stack = 0, [value]
    while stack and count <= _MOST_PARTS:
        inner = stack.pop()
        parts: Sequence[Value] = ()
        match inner:
            case Expr(args=args):
                parts = args
            case Items(items=items, keys=keys):
                parts = items if keys is None else (*keys, *items)
            case Alt(options=alternatives):
                parts = alternatives
            case Obj(kind="zip" | "enumerate", info=info):
                parts = info if isinstance(info, list) else (info,)
        count += len(parts)
        stack += [part for part in parts if isinstance(part, _COMPOSED)]
    return count


def _unbound(method: Bound) -> Unknown:
    """An attribute that is read as a value and not called."""
    return Unknown(taint=method.taint, deps=method.deps, text=method.text, by=Made(f".{method.name}", (method.receiver,)))


def _depth(value: Value) -> int:
    return 1 + max((_depth(a) for a in value.args), default=0) if isinstance(value, Expr) else 0


def two_views(one: Value | None, other: Value | None) -> tuple[Obj, Obj] | None:
    """Two values that are one module, compiled and not, or under two conditions; each may have a name of its own."""
    if not isinstance(one, Obj) or not isinstance(other, Obj) or one.compiled == other.compiled:
        return None
    return (one, other) if one == replace(other, text=one.text) else None


def decided_by(value: Value) -> Taint:
    """The reasons of the conditions that chose between alternatives, where these have no such reasons themselves."""
    found = options(value)
    return value.taint - join_taint(*found) if len(found) > 1 else UNIFORM


def merge(cond: Value, then: Value, orelse: Value) -> Value:
    """The value after a branch: equal ones stay, others become a conditional expression or alternatives, tainted by it."""
    both = two_views(then, orelse)
    if both is not None:
        views = [Const(value=False) if view.compiled is None else view.compiled for view in both]
        return replace(both[0], compiled=merge(cond, *views))
    if then == orelse:
        by_rank = RANK in cond.taint and isinstance(cond, Expr)
        by_data = bool(then.deps) and DATA in cond.taint
        if not ((by_rank or by_data) and _made_otherwise(then, orelse)):
            return orelse if is_filled(then) else then
        if by_data and not by_rank:  # two ways to a loss
            return Alt(options=(then, orelse), taint=then.taint, deps=then.deps, text=then.text)
        return Alt(options=(then, orelse), choice=cond, taint=then.taint, deps=then.deps, text=then.text)
    taint = then.taint | orelse.taint | cond.taint
    deps = then.deps | orelse.deps
    plain = (Const, Expr)
    if isinstance(then, plain) and isinstance(orelse, plain) and isinstance(cond, plain):
        merged = Expr(op="ifexp", args=(cond, then, orelse), taint=taint, deps=deps, text=then.text)
        if _depth(merged) <= 12 and _parts(merged) <= _MOST_PARTS:
            return merged
    decided = isinstance(cond, Expr) and (RANK in cond.taint or (not cond.taint and _is_there(then, orelse)))
    if decided and not isinstance(then, Alt) and not isinstance(orelse, Alt):
        return Alt(options=(then, orelse), choice=cond, taint=taint, deps=deps, text=then.text or orelse.text)
    alternatives: list[Value] = []
    for option in (*options(then), *options(orelse)):
        if option not in alternatives:
            alternatives.append(option)
        elif not is_filled(option):  # as the other is, but it may be empty
            alternatives[alternatives.index(option)] = option
    return Alt(options=tuple(alternatives[:8]), taint=taint, deps=deps, text=then.text or orelse.text)


def _is_there(*sides: Value) -> bool:
    """Whether two values are a display, an object, a constant: things that a later condition may ask for."""
    return all(isinstance(side, (Items, Obj, Const, Ext)) for side in sides)


def _made_otherwise(one: Value, other: Value) -> bool:
    """Whether two values of which nothing else is known were made by different calls."""
    if not isinstance(one, Unknown) or not isinstance(other, Unknown):
        return False
    return one.by is not None and other.by is not None and one.by != other.by
