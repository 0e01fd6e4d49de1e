"""One of two things by the rank: `Logger(folder) if rank == 0 else Quiet()`.

What is asked of such a value is asked of both, and what is called is called on either side of the choice. A method that both have
from one class runs once, with a `self` that is both.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ddp_audit.program.model import Branch, Guard, Item
from ddp_audit.program.slots import Slots
from ddp_audit.program.state import merge_slots, merge_value
from ddp_audit.program.values import RANK, Alt, Bound, Expr, Ext, Func, Obj, Value

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

T = TypeVar("T")

_CALLED = (Func, Ext, Bound, Obj)
_OWN = ("instance", "namespace", "module", "dataset")  # kinds of objects whose attributes are what the project gave them


def chosen(value: Value) -> tuple[Value, Value, Value] | None:
    """What decides between two alternatives, where that is the rank, and both of them; None for anything else."""
    match value:
        case Alt(choice=Value() as choice, options=(then, orelse)) if RANK in choice.taint:
            return choice, then, orelse
    return None


def both_objects(value: Value) -> tuple[Value, Obj, Obj] | None:
    """What decides between two objects with attributes of the project's own, and both of them."""
    match chosen(value):
        case (choice, Obj() as then, Obj() as orelse) if then.kind in _OWN and orelse.kind in _OWN:
            return choice, then, orelse
    return None


def attribute_of_both(value: Value, attr: str, ask: Callable[[Obj], Value]) -> Value | None:
    """An attribute of one of two objects; `ask` gives that of each. A method that both share is one, of both."""
    both = both_objects(value)
    if both is None:
        return None
    choice, *objects = both
    then, orelse = (ask(target) for target in objects)
    match then, orelse:
        case (Func(definition=one, receiver=Obj()), Func(definition=other, receiver=Obj())) if one.node is other.node:
            return replace(then, receiver=value)
        case Bound(), Bound():
            return then  # what a library does with either
    if then == orelse:
        return then
    found = merge_value(choice, then, orelse)
    return replace(found, text=f"{value.text}.{attr}" if value.text else attr)


def on_this_side(value: Value, choice: Value, polarity: bool) -> Value:
    """What a value is where the choice falls one way."""
    match value:
        case Alt(choice=asked, options=(then, orelse)) | Expr(op="ifexp", args=(asked, then, orelse)) if asked == choice:
            return then if polarity else orelse
    return value


def is_chosen_call(function: Value) -> bool:
    """Whether a call runs one of two things by the rank."""
    match chosen(function):
        case (_, then, orelse):
            return isinstance(then, _CALLED) and isinstance(orelse, _CALLED)
    return False


def call_either(lw: Lowering, node: ast.Call, function: Value, call: Callable[[Value], Value]) -> Value:
    """Calls each of two things on the ranks that have it."""
    decided = chosen(function)
    assert decided is not None
    choice, *targets = decided
    test = node.func
    guards = [replace(lw.guard(choice, polarity, test, "ifexp"), text=choice.text or lw.text(test)) for polarity in (True, False)]
    return merge_value(choice, *on_both_sides(lw, choice, guards, call, targets))


def on_both_sides(
    lw: Lowering, choice: Value, guards: Sequence[Guard], run: Callable[[Value], T], parts: Sequence[Value]
) -> list[T]:
    """Runs something with each of two values under the guard of its side, from one state, and joins what both leave behind."""
    before, outer, depth = lw.state, lw.block, len(lw.guards)
    states: list[Slots] = []
    blocks: list[list[Item]] = []
    results: list[T] = []
    for guard, part in zip(guards, parts, strict=True):
        lw.state, lw.block = before.fork(), []
        lw.guards.append(guard)
        results.append(run(part))
        del lw.guards[depth:]
        states.append(lw.state)
        blocks.append(lw.block)
    lw.block = outer
    if not lw.muted and any(blocks):
        lw.block.append(Branch(guards[0], blocks[0], blocks[1]))
    lw.state = merge_slots(choice, *states)
    return results
