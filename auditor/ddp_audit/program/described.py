"""Calls and values of libraries that the user describes (knowledge/stubs.py): they do what its expressions do."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.stubs import Stub, libraries_in, located
from ddp_audit.program.contracts import generic
from ddp_audit.program.functions import bind
from ddp_audit.program.lookup import canonical
from ddp_audit.program.state import Frame, FunctionInfo
from ddp_audit.program.values import Const, Ext, Value, uniform

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def described_call(lw: Lowering, node: ast.Call, stub: Stub, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The value of a call, after its effects. What a description calls in a circle is unknown."""
    unknown = generic(args, kwargs, lw.text(node), stub.adds, stub.name)
    lw.steps += 1
    if id(stub) in lw.active or lw.steps > lw.most_steps:
        return unknown
    here = lw.here
    lw.frame_count += 1
    frame = Frame(
        ("described", lw.frame_count), here.source, here.name,
        guard_base=here.guard_base, no_sync_base=here.no_sync_base, loop_base=here.loop_base,
    )  # fmt: skip
    bound = bind(lw, FunctionInfo(stub.name, stub.signature, frame), args, kwargs, None, False)
    lw.state.update(((frame.id, name), value) for name, value in bound.items())
    lw.active.append(id(stub))
    result = _evaluated(lw, node, stub, frame)
    lw.active.pop()
    after = {name: lw.state.get((frame.id, name)) for name in bound}
    lw.state.forget(frame.id)
    _hand_back(lw, node, stub, {name: value for name, value in after.items() if value is not None and value is not bound[name]})
    match stub.gives:
        case "":
            return unknown if result is None else result
        case "none":
            return Const(value=None)
        case "uniform":
            return uniform(unknown, stub.name)
        case "unknown":
            return unknown
    return after.get(stub.gives) or unknown


def described_value(lw: Lowering, node: ast.expr, value: Value) -> Value:
    """What a name of a library stands for where it is read."""
    stub = lw.hints.stubs.get(value.name) if isinstance(value, Ext) else None
    if stub is None or stub.value is None or id(stub) in lw.active:
        return value
    lw.frame_count += 1
    frame = Frame(("described", lw.frame_count), lw.here.source, lw.here.name)
    lw.active.append(id(stub))
    found = _in_frame(lw, node, stub.value, stub, frame)
    lw.active.pop()
    lw.state.forget(frame.id)
    return found


def _evaluated(lw: Lowering, node: ast.Call, stub: Stub, frame: Frame) -> Value | None:
    result: Value | None = None
    for expression in stub.like:
        result = _in_frame(lw, node, expression, stub, frame)
    return result


def _in_frame(lw: Lowering, node: ast.expr, expression: ast.expr, stub: Stub, frame: Frame) -> Value:
    for library in libraries_in(expression, stub.parameters):
        lw.state[(frame.id, library)] = Ext(name=canonical(library), text=library)
    here, lw.here = lw.here, frame
    found = lw.eval(located(expression, node))
    lw.here = here
    return found


def _hand_back(lw: Lowering, node: ast.Call, stub: Stub, changed: dict[str, Value]) -> None:
    """Gives variables that were handed in what a collective left in them."""
    given: dict[str, ast.expr] = dict(zip(stub.parameters, node.args, strict=False))
    given |= {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    for name, value in changed.items():
        place = given.get(name)
        if isinstance(place, (ast.Name, ast.Attribute)):
            lw.assign(place, value)
