"""Variables that hold one tensor: what is written into it by one name is read by all of them, those of a caller too.

A value has no address. It is one tensor with another where both came from one call: copies of a value, made when it is bound to a
name or a parameter, share what made it. A view that looks at all elements of another tensor is that tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge.tensors import VIEWS
from ddp_audit.program.values import Alt, Bound, Expr, Items, Made, Obj, Unknown, Value, join_deps, join_taint, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_MOST_VIEWS = 20  # of one another


def write_through(lw: Lowering, written: Value, change: Callable[[Value], Value], in_lists: bool = False) -> None:
    """Put `change` of each value in place of it, in all slots that hold the tensor `written` or a list with it in.

    With `in_lists` the lists get new elements, and the variables that held the old ones keep them.
    """
    wanted = {key for option in options(written) for key in _keys(option)}
    if not wanted:
        return
    for slot, value in list(lw.state.items()):
        if in_lists and not isinstance(value, Items):
            continue
        changed = _changed(value, wanted, change)
        if changed is not value:
            lw.effects += 1
            lw.state[slot] = changed


def copy_into(lw: Lowering, written: Value, source: Value) -> None:
    """Put the elements of another tensor into all slots that hold `written`: it differs between ranks as these do."""
    if isinstance(source, Unknown) and written.taint and not source.taint:
        write_through(lw, written, lambda held: Unknown(deps=held.deps, text=held.text, by=Made("copy_", (source,))))


def _keys(value: Value) -> list[object]:
    """What a tensor, or the tensors in a list, can be recognised by."""
    if isinstance(value, Items):
        return [key for inner in value.items for option in options(inner) for key in _keys(option)]
    key = _key(value)
    return [] if key is None else [key]


def _key(value: Value) -> object | None:
    for _ in range(_MOST_VIEWS):
        if isinstance(value, Unknown) and value.by is not None and value.by.args and _is_view(value.by.name):
            value = value.by.args[0]
        elif isinstance(value, Bound) and value.name in VIEWS:  # an attribute, as `x.data`
            value = value.receiver
    if isinstance(value, Unknown):
        if value.by is not None:
            return id(value.by)  # the state holds it, so that no other object can have its number meanwhile
        return (value.text, value.taint, value.deps) if value.text else None
    return id(value.args) if isinstance(value, Expr) and value.args else None


def _is_view(name: str) -> bool:
    last = name.rsplit(".", 1)[-1]
    return last in VIEWS or (last.endswith("_") and not last.endswith("__"))  # torch's name for a method that gives its own tensor


def _changed(value: Value, wanted: set[object], change: Callable[[Value], Value]) -> Value:
    """The value with `change` in place of what is wanted in it; the same object where nothing is."""
    if isinstance(value, Alt):
        parts = tuple(_changed(option, wanted, change) for option in value.options)
        if all(one is other for one, other in zip(parts, value.options, strict=True)):
            return value
        own = () if value.choice is None else (value.choice,)
        return replace(value, options=parts, taint=join_taint(*parts, *own), deps=join_deps(*parts))
    if isinstance(value, Items):
        items = tuple(_changed(item, wanted, change) for item in value.items)
        if all(one is other for one, other in zip(items, value.items, strict=True)):
            return value
        return replace(value, items=items, taint=join_taint(*items), deps=join_deps(*items))
    if isinstance(value, Obj):
        return value
    return change(value) if _key(value) in wanted else value
