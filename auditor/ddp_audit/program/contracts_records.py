"""Objects of the standard library that hold values for a program: namespaces, named tuples, events, the levels of loggers."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.program.contracts import Contracts, generic
from ddp_audit.program.operations import operation
from ddp_audit.program.state import ClassInfo, merge_value
from ddp_audit.program.values import (
    Alt,
    Bound,
    Const,
    Ext,
    Items,
    Obj,
    Unknown,
    Value,
    join_deps,
    join_taint,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()
_LEVELS = {"CRITICAL": 50, "FATAL": 50, "ERROR": 40, "WARNING": 30, "WARN": 30, "INFO": 20, "DEBUG": 10, "NOTSET": 0}


def _record(lw: Lowering, node: ast.AST, kind: str, values: dict[str, Value], fields: tuple[str, ...] = ()) -> Obj:
    """An object with some attributes; `fields` are those that it gives by position."""
    found = list(values.values())
    key, taint, deps = (kind, lw.span(node), lw.way()), join_taint(*found), join_deps(*found)
    made = Obj(key=key, kind=kind, made=lw.span(node), info=fields, taint=taint, deps=deps, text=lw.text(node))
    for name, value in values.items():
        lw.state[(key, name)] = value
    return made


@CONTRACTS.of("types.SimpleNamespace", "argparse.Namespace")
def _namespace(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args or "**" in kwargs:
        return generic(args, kwargs, lw.text(node))
    return _record(lw, node, "namespace", kwargs)


@CONTRACTS.of("collections.namedtuple")
def _named_tuple(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`namedtuple("Point", "x y")`: a class of which the fields are known."""
    listed = args[1] if len(args) > 1 else kwargs.get("field_names")
    if isinstance(listed, Const) and isinstance(listed.value, str):
        fields = tuple(listed.value.replace(",", " ").split())
    elif isinstance(listed, Items) and not listed.many and all(isinstance(one, Const) for one in listed.items):
        fields = tuple(str(one.value) for one in listed.items if isinstance(one, Const))
    else:
        return generic(args, kwargs, lw.text(node))
    defaults = kwargs.get("defaults")
    known = defaults.items if isinstance(defaults, Items) and not defaults.many else ()
    given = dict(zip(fields[len(fields) - len(known) :], known, strict=False))
    return Obj(key=("named tuple", lw.span(node)), kind="record-class", info=(fields, given), text=lw.text(node))


def make_record(lw: Lowering, node: ast.Call, made: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of what namedtuple() gave."""
    fields, defaults = made.info
    if len(args) > len(fields) or "**" in kwargs or any(isinstance(part, ast.Starred) for part in node.args):
        return generic(args, kwargs, lw.text(node))
    values = {**defaults, **dict(zip(fields, args, strict=False)), **kwargs}
    return _record(lw, node, "record", {name: values.get(name, Unknown(text=name)) for name in fields}, fields)


def as_items(lw: Lowering, value: Value) -> Value:
    """A named tuple as the tuple that it is; any other value as it is."""
    match value:
        case Obj(kind="record", key=key, info=fields):
            names: Sequence[str] = fields
        case Obj(kind="instance", key=key, cls=ClassInfo() as info) if info.is_named_tuple:
            names = info.fields()
        case _:
            return value
    items = tuple(lw.state.get((key, name)) or Unknown(text=name) for name in names)
    return Items(items=items, kind="tuple", taint=join_taint(*items), deps=join_deps(*items))


# ---- events


@CONTRACTS.of("threading.Event")
def _event(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    made = Obj(key=("event", lw.span(node), lw.way()), kind="event", text=lw.text(node))
    lw.state[(made.key, "flag")] = Const(value=False)
    return made


def _set_flag(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "event")
    if target is None:
        return None
    lw.effects += 1
    lw.state[(target.key, "flag")] = Const(value=bound.name == "set")
    return Const(value=None)


def _is_set(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Whether an event was set. Another thread may set it, so that a constant tells nothing."""
    target = the_object(bound.receiver, "event")
    found = None if target is None else lw.state.get((target.key, "flag"))
    return None if found is None else _if_decided(lw, node, found)


def _if_decided(lw: Lowering, node: ast.AST, found: Value) -> Value:
    return Unknown(text=lw.text(node)) if isinstance(found, Const) else found


# ---- loggers


@CONTRACTS.of("logging.getLogger")
def _logger(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`getLogger(name)`: one object for each name in the process."""
    name = args[0] if args else kwargs.get("name", Const(value=None))
    place = name.value if isinstance(name, Const) else lw.span(node)
    return Obj(key=("logger", place), kind="logger", text=lw.text(node))


def _level(value: Value) -> Value:
    """A level as a number."""
    match value:
        case Ext(name=name) if name.startswith("logging.") and name.removeprefix("logging.") in _LEVELS:
            return Const(value=_LEVELS[name.removeprefix("logging.")])
        case Const(value=str() as name) if name in _LEVELS:
            return Const(value=_LEVELS[name])
        case Alt(choice=Value() as choice, options=(then, orelse)):
            return merge_value(choice, _level(then), _level(orelse))
        case Alt(options=found):
            return replace(value, options=tuple(map(_level, found)))
    return value


def _set_level(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "logger")
    if target is None or len(args) != 1:
        return None
    lw.effects += 1
    lw.state[(target.key, "level")] = _level(args[0])
    return Const(value=None)


def _is_enabled(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Whether a logger takes a level, where a condition set its own."""
    target = the_object(bound.receiver, "logger")
    level = None if target is None else lw.state.get((target.key, "level"))
    if level is None or isinstance(level, Const) or len(args) != 1:
        return None
    return _if_decided(lw, node, operation(">=", _level(args[0]), level, text=lw.text(node)))


def _effective_level(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    target = the_object(bound.receiver, "logger")
    level = None if target is None else lw.state.get((target.key, "level"))
    return None if level is None else _if_decided(lw, node, level)


CONTRACTS.kinds.update({
    ("event", "set"): _set_flag, ("event", "clear"): _set_flag, ("event", "is_set"): _is_set, ("event", "isSet"): _is_set,
    ("logger", "setLevel"): _set_level, ("logger", "isEnabledFor"): _is_enabled, ("logger", "getEffectiveLevel"): _effective_level,
})  # fmt: skip
