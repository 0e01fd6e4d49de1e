"""Lists that the program fills: their elements, their number as far as it is known, and whether there is one at all.

Inside of loops one element stands for all. A list has an element for certain where one was added in every pass of a loop that has
at least one pass; what takes elements away leaves that only where it asked for their number before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from ddp_audit.knowledge.kinds import is_kind
from ddp_audit.program.made import FILLED
from ddp_audit.program.model import Loop
from ddp_audit.program.operations import bounded_list
from ddp_audit.program.slots import Slots
from ddp_audit.program.state import merge_value
from ddp_audit.program.values import (
    Alt,
    Const,
    Expr,
    Items,
    Made,
    Obj,
    Taint,
    Unknown,
    Value,
    constant,
    evaluate,
    is_filled,
    join_deps,
    join_taint,
    options,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_MOST_ITEMS = 16  # of a list that is filled one by one
_LENGTH_OF_SOME = {  # what a number of elements that is at least one says, compared with 0 and with 1
    0: {"==": False, "!=": True, ">": True, "<=": False, ">=": True, "<": False},
    1: {"<": False, ">=": True},
}


def as_list(value: Value) -> Items | None:
    """A list as far as its elements are known; one of several lists, as what a loop leaves, is one with any number of them."""
    found = list(options(value))
    lists = [o for o in found if isinstance(o, Items) and o.keys is None and o.kind == "list"]
    if not lists or len(lists) < len(found):
        return None
    if len(lists) == 1:
        return lists[0]
    items = tuple(one.items[-1] for one in lists if one.items)
    by_branch = value.taint - join_taint(*lists)
    count = Unknown(taint=by_branch | join_taint(*(one.count for one in lists if one.count is not None)))
    filled = all(map(is_filled, lists))
    return Items(items=items[-1:], kind="list", many=True, taint=value.taint, deps=join_deps(*lists), count=count, filled=filled)


def grown(lw: Lowering, held: Items, how: str, added: Value) -> Items:
    """A list after append() or extend(): with one element more in the pass that made it, with any number of them in a loop."""
    taint, deps = held.taint | added.taint, held.deps | added.deps
    if how == "extend":
        known = isinstance(added, Items) and added.keys is None and not added.many
        more: tuple[Value, ...] = added.items if isinstance(added, Items) and added.keys is None else (_element(added),)
    else:
        known, more = True, (added,)
    if known and not held.many and held.within is innermost_loop(lw) and len(held.items) < _MOST_ITEMS:
        return bounded_list(Items(items=(*held.items, *more), kind=held.kind, taint=taint, deps=deps, within=held.within))
    count = _count_after(lw, held, added if how == "extend" else None)
    items = (*held.items[-1:], *more[-1:])
    filled = is_filled(held) or (in_each_pass(lw) and (how == "append" or is_filled(added)))
    return bounded_list(Items(items=items, kind=held.kind, many=True, taint=taint, deps=deps, count=count, filled=filled))


def innermost_loop(lw: Lowering) -> Loop | None:
    """The loop of which a pass is running."""
    return lw.loops[-1] if lw.loops else None


def extended(lw: Lowering, value: Value, added: Value) -> Items | None:
    """A list after `+=` in a loop, or with any number of elements; None where it is no such list."""
    held = as_list(value)
    return grown(lw, held, "extend", added) if held is not None and (lw.loops or held.many) else None


def united(lw: Lowering, value: Value, added: Value) -> Value | None:
    """A set or a dict after `|=`; None where nothing is known of it."""
    return with_some(lw, value) if is_filled(added) else None


def with_some(lw: Lowering, value: Value) -> Value | None:
    """A container after something was put into it at a place that is not known; None where it may have been there, or empty still.

    What else is known of the container stays as it is.
    """
    if not in_each_pass(lw):
        return None
    if isinstance(value, Alt):
        some = tuple(with_some(lw, option) for option in value.options)
        known = tuple(option for option in some if option is not None)
        return replace(value, options=known) if known and len(known) == len(some) else None
    if isinstance(value, Items) and (value.kind in ("set", "dict") or value.keys is not None):
        return replace(value, filled=True)
    return replace(value, filled=True) if isinstance(value, Unknown) and _is_container(value) else None


def without_some(value: Value) -> Value | None:
    """A container other than a list after something was taken away: it may have nothing left; None where nothing changes."""
    if isinstance(value, Alt):
        return (
            replace(value, options=tuple(without_some(option) or option for option in value.options)) if is_filled(value) else None
        )
    return replace(value, filled=False) if isinstance(value, (Items, Unknown)) and value.filled else None


def _is_container(value: Unknown) -> bool:
    """Whether a value was made as an empty container of which the elements are not followed: `defaultdict(list)`."""
    return value.by is not None and is_kind(value.by.name, "python-container")


def reordered(lw: Lowering, value: Value, element: Value, adds: int) -> Items | None:
    """A list after something put its elements into another order, with one more or one less; None where it is not a list."""
    held = as_list(value)
    if held is None:
        return None
    size = adds + len(held.items)
    if not held.many and not lw.loops and size >= 0:
        return bounded_list(replace(held, items=(element,) * size, taint=element.taint, deps=element.deps))
    filled = shortened(lw, held).filled if adds < 0 else is_filled(held) or (adds > 0 and in_each_pass(lw))
    taint, deps = element.taint | held.taint, element.deps | held.deps
    return Items(items=(element,), kind="list", many=True, taint=taint, deps=deps, filled=filled)


def shortened(lw: Lowering, held: Items) -> Items:
    """A list after an element was taken away: it has others where the number of its elements was asked for before."""
    if not held.many:
        return replace(held, many=True, filled=_asked_for_more(lw))
    return replace(held, filled=held.filled and _asked_for_more(lw))


def listed(lw: Lowering, value: Items, over: Value | None, count: Value | None) -> Items:
    """What a comprehension makes: it has an element where what it ranges over has one, and no test leaves any out."""
    known = count is not None and all(_is_positive(evaluate(count, world)) for world in lw.worlds)
    return replace(value, filled=known or (over is not None and count is not None and _over_batches(over)))


def _is_positive(number: object) -> bool:
    return isinstance(number, int) and number > 0


def in_each_pass(lw: Lowering) -> bool:
    """Whether no condition inside of the loops around keeps a pass from coming here."""
    return not any(guard.loops for guard in lw.guards)


def _asked_for_more(lw: Lowering) -> bool:
    """Whether the innermost condition says that a list has two elements or more: `len(best) > 5`."""
    test = lw.guards[-1].test if lw.guards and lw.guards[-1].polarity else None
    match test:
        case Expr(op=">" | ">=" as op, args=(Unknown(by=Made(name="builtins.len")), least)):
            number = constant(least)
            return isinstance(number, int) and number >= (1 if op == ">" else 2)
    return False


def says_of_number(left: Value, sign: str, right: Value) -> bool | None:
    """What a comparison of a list's length with 0 or 1 says, where it is known to have an element: `len(best) == 0`."""
    by = left.by if isinstance(left, Unknown) else None
    if by is None or by.name != "builtins.len" or not is_filled(by.args[0]):
        return None
    number = constant(right)
    return _LENGTH_OF_SOME.get(number, {}).get(sign) if isinstance(number, int) else None


def after_a_loop(lw: Lowering, loop: Loop, passed: Slots, before: Slots) -> Slots:
    """Joins what the last pass of a loop leaves with what holds where it has none, which is not so for lists that it fills."""
    cond, once = Unknown(taint=loop.taint), _has_a_pass(lw, loop)

    def joined(mine: Value, other: Value) -> Value:
        if once and isinstance(mine, (Unknown, Expr)) and _was_filled(mine):
            return replace(mine, taint=mine.taint | loop.taint)
        found = tuple(options(mine))
        if once and found and all(map(_was_filled, found)):
            return Alt(options=found, taint=mine.taint | loop.taint, deps=mine.deps, text=mine.text)
        return merge_value(cond, mine, other)

    return passed.join(before, joined)


def _was_filled(value: Value) -> bool:
    """Whether something was put into what a value holds, which a display with all its elements in it does not say."""
    return value.filled if isinstance(value, (Items, Unknown)) else is_filled(value)


def _has_a_pass(lw: Lowering, loop: Loop) -> bool:
    """Whether a for loop has a pass on every rank, with the defaults: a known number of them, or one for each batch of a loader."""
    if loop.kind != "for":
        return False
    known = loop.count is not None and all(_is_positive(evaluate(loop.count, world)) for world in lw.worlds)
    return known or _over_batches(loop.over)


def _over_batches(over: Value) -> bool:
    match over:
        case Obj(kind="loader"):
            return True
        case Obj(kind="enumerate", info=Value() as inner):
            return _over_batches(inner)
        case Obj(kind="zip", info=list() as parts):
            return all(map(_over_batches, parts))
        case Obj(kind="generator", info=(Value() as source, _)):
            return _over_batches(source)
    return False


def _count_after(lw: Lowering, held: Items, added: Value | None) -> Value | None:
    """How many elements a list has that a loop fills, as far as why that can differ; None where that is another matter."""
    parts: Sequence[Value] = [held] if added is None else [held, added]
    if any(isinstance(one, Items) and one.many and one.count is None for one in parts):
        return None
    counts = [(one.count or Unknown()) if isinstance(one, Items) else one for one in parts]
    by = Made(FILLED, (lw.loops[-1].over,)) if lw.loops else None
    return Unknown(taint=join_taint(*counts).union(*(loop.taint for loop in lw.loops)), by=by)


def _element(value: Value) -> Value:
    """One element of a sequence of which nothing else is known."""
    return Unknown(taint=value.taint, deps=value.deps, text=f"{value.text}[..]" if value.text else "")


def pairs_of(value: Value) -> list[tuple[str, Value]] | None:
    """Keys with their values, as `dict()` takes them: pairs one by one, or two zipped lists. None where one is not known."""
    match value:
        case Obj(kind="zip", info=[Items() as keys, Items() as values]) if is_whole(keys) and is_whole(values):
            rows = list(zip(keys.items, values.items, strict=False))
        case Items(items=items) if is_whole(value) and all(isinstance(one, Items) and is_whole(one) for one in items):
            rows = [(one.items[0], one.items[1]) for one in items if isinstance(one, Items) and len(one.items) == 2]
            if len(rows) < len(items):
                return None
        case _:
            return None
    found = [(key.value, value) for key, value in rows if isinstance(key, Const) and isinstance(key.value, str)]
    return found if len(found) == len(rows) else None


def is_whole(value: Items) -> bool:
    """Whether all elements of a list or tuple are known, in order."""
    return value.keys is None and value.kind in ("list", "tuple") and not value.many and not value.filled


def taint_of_length(value: Value) -> Taint:
    """Why the length of a value can differ: not because of the elements of a list whose number is known to be another matter."""
    lists = list(options(value))
    if not all(isinstance(one, Items) and (one.count is not None or not (one.many or one.filled)) for one in lists):
        return value.taint
    elements = frozenset().union(*(one.taint for one in lists))
    return (value.taint - elements).union(*(one.count.taint for one in lists if isinstance(one, Items) and one.count is not None))


def in_any_order(value: Value) -> Value:
    """A list of which is not followed what element comes first, but how many there are."""
    if not isinstance(value, Items) or not is_whole(value) or len(value.items) < 2:
        return value
    element = reduce(partial(merge_value, Unknown(taint=value.taint)), value.items)
    return replace(value, items=(element,), many=True, filled=True, count=Const(value=len(value.items)))
