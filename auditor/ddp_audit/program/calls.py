"""The lowering of calls: arguments, and what is called: a project function, a class, an object, a library by contract."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program import async_ops, contracts, long_work, sides
from ddp_audit.program.classes import instantiate
from ddp_audit.program.contracts_records import as_items, make_record
from ddp_audit.program.described import described_call
from ddp_audit.program.functions import call_function
from ddp_audit.program.helpers import hinted_call
from ddp_audit.program.nodes import Forward
from ddp_audit.program.state import ClassInfo, FunctionInfo
from ddp_audit.program.stub_lookup import stub_of
from ddp_audit.program.uses import note_use
from ddp_audit.program.values import (
    Bound,
    Const,
    Expr,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    join_deps,
    join_taint,
    options,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def call(lw: Lowering, node: ast.Call) -> Value:
    """The value of a call, after its effects."""
    function = lw.eval(node.func)
    args, kwargs = arguments(lw, node)
    long_work.note(lw, node, function, args)
    hinted = hinted_call(lw, node, args, kwargs) if lw.hints.names else None
    result = dispatch(lw, node, function, args, kwargs) if hinted is None else hinted
    async_ops.after_call(lw, node, function, (*args, *kwargs.values()))
    return result


def arguments(lw: Lowering, node: ast.Call) -> tuple[list[Value], dict[str, Value]]:
    """Positional and keyword arguments; `*display` and `**dict display` are spread."""
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    for part in node.args:
        if isinstance(part, ast.Starred):
            value = as_items(lw, lw.eval(part.value))
            if isinstance(value, Items) and value.keys is None:
                args += (_one_of_many(item, value) for item in value.items) if value.many else value.items
            else:
                args.append(Unknown(taint=value.taint, deps=value.deps, text="*" + value.text, by=Made("*", (value,))))
        else:
            args.append(lw.eval(part))
    for keyword in node.keywords:
        value = lw.eval(keyword.value)
        if keyword.arg is not None:
            kwargs[keyword.arg] = value
        elif isinstance(value, Items) and value.keys is not None:
            for key, inner in zip(value.keys, value.items, strict=True):
                if isinstance(key, Const) and isinstance(key.value, str):
                    kwargs[key.value] = inner
        else:
            kwargs["**"] = value
    return args, kwargs


def _one_of_many(item: Value, among: Items) -> Value:
    """An element that stands for any number of arguments: their number is one of the reasons for which it can differ."""
    if among.taint <= item.taint or not all(isinstance(option, (Const, Expr, Unknown)) for option in options(item)):
        return item
    return Unknown(taint=item.taint | among.taint, deps=item.deps | among.deps, text=item.text)


def dispatch(lw: Lowering, node: ast.Call, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Calls a value."""
    if lw.hints.stubs:
        stub = stub_of(lw, function)
        if stub is not None:
            return described_call(lw, node, stub, args, kwargs)
    if sides.is_chosen_call(function):
        return sides.call_either(lw, node, function, lambda one: dispatch(lw, node, one, args, kwargs))
    for option in options(function):
        match option:
            case Func(definition=FunctionInfo() as info, receiver=receiver):
                return _call_method(lw, node, info, receiver, args, kwargs)
            case Obj(kind="class"):
                return instantiate(lw, node, option, args, kwargs)
    target = the_object(function, "ddp") or the_object(function)
    if target is not None:
        return call_object(lw, node, target, args, kwargs)
    for option in options(function):
        match option:
            case Ext():
                return contracts.call_library(lw, node, option, args, kwargs)
            case Bound():
                return contracts.method_call(lw, node, option, args, kwargs)
    return contracts.unknown_call(lw, node, function, args, kwargs)


def _call_method(
    lw: Lowering, node: ast.Call, info: FunctionInfo, receiver: Value | None, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    target = the_object(receiver)
    wrapper = lw.wrapped.get(target.key) if target is not None and lw.looking is None else None
    if wrapper is None or info.name.startswith("__") or target is None:
        return call_function(lw, info, args, kwargs, node, receiver=target, itself=receiver)
    number = lw.emit(node, Forward(target=wrapper, args=contracts.numbered(args, kwargs), through="module", method=info.name))
    result = call_function(lw, info, args, kwargs, node, receiver=target)
    if isinstance(result, (Const, Obj)):
        return result
    own = {number} if number is not None and lw.grad is not False else set()
    by = Made("returned", (result,))
    return Unknown(taint=result.taint | {"local data"}, deps=result.deps | own, text=result.text, by=by)


def call_object(lw: Lowering, node: ast.Call, target: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Calls an object: a wrapper or a module (a forward), an instance with __call__, a bound context."""
    values = [*args, *kwargs.values()]
    if target.kind == "ddp":
        return _forward(lw, node, target, "wrapper", args, kwargs)
    if target.kind == "module":
        if lw.looking is not None:
            from ddp_audit.program.inside import follow

            note_use(lw, node, target)
            inner = follow(lw, target, node, args, kwargs)
            if inner is not None:
                return inner
        wrapper = lw.wrapped.get(target.key) if lw.looking is None else None
        if wrapper is not None:
            return _forward(lw, node, wrapper, "module", args, kwargs)
        part_of = _taken_apart(lw, target)
        if part_of is not None:
            return _forward(lw, node, part_of, "module", args, kwargs, target.text.rsplit(".", 1)[-1])
        if isinstance(target.cls, ClassInfo) and (join_deps(*values) or holds_wrapper(lw, target)):
            found = target.cls.find("forward")
            if found is not None:
                info = FunctionInfo("forward", found[1], found[0].frame, found[0])
                result = call_function(lw, info, args, kwargs, node, receiver=target)
                by = Made("returned", (result, *values))
                return Unknown(taint=result.taint | join_taint(*values), deps=result.deps | join_deps(*values), by=by)
    elif isinstance(target.cls, ClassInfo):
        found = target.cls.find("__call__")
        if found is not None:
            info = FunctionInfo("__call__", found[1], found[0].frame, found[0])
            return call_function(lw, info, args, kwargs, node, receiver=target)
    elif target.kind == "record-class":
        return make_record(lw, node, target, args, kwargs)
    elif target.kind == "no-sync-method":
        return Obj(key=target.key, kind="no-sync", made=lw.span(node), info=target.info)
    elif target.kind == "partial":
        bound, given, named_given = target.info
        return dispatch(lw, node, bound, [*given, *args], {**named_given, **kwargs})
    deps = join_deps(*values)
    if target.kind == "module" and lw.forward_of is not None and lw.grad is not False:
        deps |= {lw.forward_of}  # a module inside of the wrapped one, whose forward is followed
    return Unknown(taint=join_taint(*values), deps=deps, by=_made_by(target, args, kwargs))


def _made_by(target: Obj, args: list[Value], kwargs: dict[str, Value]) -> Made:
    """What a call of an object gives: a layer of a library by its class, with the keywords that it was constructed with."""
    given = target.info if target.kind == "module" and isinstance(target.info, dict) else {}
    return Made(target.cls if isinstance(target.cls, str) else "?", tuple(args), tuple({**given, **kwargs}.items()))


def _taken_apart(lw: Lowering, part: Obj) -> Obj | None:
    """The wrapper of a model, where a part of it is called from outside of the model: `model.module.encoder(x)`."""
    if lw.looking is not None or lw.forward_of is not None or not lw.wrapped:
        return None
    wrapper = lw.program.modules.wrapper_around(part.key)
    module = the_object(wrapper.info) if wrapper is not None else None
    if module is None or (lw.here.receiver is not None and lw.here.receiver.key in lw.program.modules.inside(module.key)):
        return None
    return wrapper


def _forward(
    lw: Lowering, node: ast.Call, wrapper: Obj, through: str, args: list[Value], kwargs: dict[str, Value], part: str = ""
) -> Value:
    number = lw.emit(node, Forward(target=wrapper, args=contracts.numbered(args, kwargs), through=through, part=part))
    module = None if part else the_object(wrapper.info)
    by = None if number is None else Made("forward", (), (("node", Const(value=number)),))
    if module is not None and isinstance(module.cls, ClassInfo) and contracts.mentions_collectives(module.cls):
        found = module.cls.find("forward")
        if found is not None:
            info = FunctionInfo("forward", found[1], found[0].frame, found[0])
            outer, lw.forward_of = lw.forward_of, number
            by = Made("returned", (call_function(lw, info, args, kwargs, node, receiver=module),))
            lw.forward_of = outer
    deps = frozenset({number}) if number is not None and lw.grad is not False else frozenset()
    return Unknown(taint=frozenset({"local data"}), deps=deps | join_deps(*args, *kwargs.values()), text="output", by=by)


def holds_wrapper(lw: Lowering, target: Obj) -> bool:
    """Whether an attribute of an object is a DDP wrapper."""
    return target.key in lw.holders
