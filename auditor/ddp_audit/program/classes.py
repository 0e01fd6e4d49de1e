"""Project classes: the class statement, construction of objects, dataclass fields."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.program import contracts, lookup, names
from ddp_audit.program.contracts_config import option
from ddp_audit.program.functions import call_function, from_mapping
from ddp_audit.program.meaning import is_kind
from ddp_audit.program.nodes import OptimizerMade, SamplerMade
from ddp_audit.program.state import ClassInfo, Frame, FunctionInfo
from ddp_audit.program.values import (
    RANK,
    Const,
    Obj,
    Unknown,
    Value,
    join_taint,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def make_class(lw: Lowering, node: ast.ClassDef) -> Obj:
    """A class statement: its methods, its class variables, its bases."""
    info = ClassInfo(node.name, node, lw.here, [lw.eval(base) for base in node.bases])
    info.is_dataclass = any(_makes_dataclass(lw, d) for d in node.decorator_list) or info.is_named_tuple
    key = ("class", lw.here.source.path, node.name)
    frame = Frame(id=key, source=lw.here.source, name=node.name, parent=lw.here, module=lw.here.top)
    saved, lw.here = lw.here, frame
    for statement in node.body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            info.methods.setdefault(statement.name, statement)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            lw.statement(statement)
    lw.here = saved
    return Obj(key=key, kind="class", cls=info, text=node.name)


def _makes_dataclass(lw: Lowering, decorator: ast.expr) -> bool:
    head = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(head, (ast.Name, ast.Attribute)) and is_kind(lw.eval(head), "makes-dataclass")


def instantiate(lw: Lowering, node: ast.Call, made: Obj, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Constructs an object of a project class: its own kind, with __init__ inlined and dataclass fields bound."""
    info: ClassInfo = made.cls
    kind = names.kind_of_class(info)
    span = lw.span(node)
    target = Obj(key=(span, lw.way()), kind=kind, cls=info, made=span, text=info.name)
    if kind in ("dataset", "iterable-dataset"):
        target = replace(target, info=[*args, *kwargs.values()], taint=join_taint(*args, *kwargs.values()) & {RANK})
    if kind == "sampler":
        target = replace(target, info=[*args, *kwargs.values()])
    if kind == "ddp-subclass":
        wrapper = contracts.wrap(lw, node, args, kwargs, "ddp")
        if isinstance(wrapper, Obj):
            lw.state[(wrapper.key, "__class__")] = made
        return wrapper
    if kind == "sampler":
        lw.emit(node, SamplerMade(target=target, args=contracts.numbered(args, kwargs), cls=info.name, custom=True))
    if kind == "module":
        lw.program.modules.objects[target.key] = target
        lw.program.modules.arguments[target.key] = (*args, *kwargs.values())
    elif kind == "optimizer":
        target = replace(target, info=args[0] if args else kwargs.get("params"))
        lw.emit(node, OptimizerMade(target=target, params=target.info or Unknown()))
    if kind in ("module", "dataset", "iterable-dataset"):
        lw.classes_of[target.key] = info
    found = info.find("__init__")
    if found is not None:
        holder, method = found
        call_function(lw, FunctionInfo("__init__", method, holder.frame, holder), args, kwargs, node, receiver=target)
    elif info.is_dataclass:
        _dataclass_fields(lw, info, target, args, kwargs)
    for value in (*args, *kwargs.values()):
        if kind == "module":
            lookup.adopt(lw, target, value)
    return target


def _dataclass_fields(lw: Lowering, info: ClassInfo, target: Obj, args: list[Value], kwargs: dict[str, Value]) -> None:
    for index, statement in enumerate(info.field_statements()):
        assert isinstance(statement.target, ast.Name)
        name = statement.target.id
        if index < len(args):
            value = args[index]
        elif name in kwargs:
            value = kwargs[name]
        elif "**" in kwargs:
            value = from_mapping(lw, kwargs["**"], name)
        else:
            value = _default_field(lw, info, name, statement)
        lw.state[(target.key, name)] = value


def _default_field(lw: Lowering, info: ClassInfo, name: str, statement: ast.AnnAssign) -> Value:
    value = lookup.class_attribute(lw, info, name)
    if isinstance(value, Const) and isinstance(statement.value, ast.Constant):
        return option(lw, name, value.value, info.frame, statement.value)
    return names.by_name(name) or value or Unknown(text=name)
