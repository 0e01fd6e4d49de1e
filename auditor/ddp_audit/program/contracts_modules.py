"""What calls of torch do to modules: parameters handed out, gradients switched, weights loaded or drawn, layers replaced."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import given, named, parameters
from ddp_audit.knowledge.kinds import is_kind, kinds
from ddp_audit.program import lookup
from ddp_audit.program.changes import (
    element_of_parameters,
    inside_wrapper,
    joined_parameters,
    note_cleared,
    note_scale,
    note_write,
    set_requires_grad,
)
from ddp_audit.program.contracts import Contract, Contracts, generic
from ddp_audit.program.contracts_random import note_random
from ddp_audit.program.functions import keep_written
from ddp_audit.program.lists import as_list, grown, shortened, with_some, without_some
from ddp_audit.program.modules import attribute_path, module_of, owners_of
from ddp_audit.program.nodes import ModuleChange, ParameterWrite
from ddp_audit.program.operations import bounded_list
from ddp_audit.program.shared_memory import copy_into
from ddp_audit.program.values import (
    Bound,
    Const,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    is_filled,
    join_deps,
    join_taint,
    options,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

CONTRACTS = Contracts()

_ADDS = ("add_module", "register_module", "register_parameter", "set_submodule")


# ---- parameters


def _parameters(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`module.parameters()`: the parameters of a module that is known."""
    owner = module_of(bound.receiver)
    if owner is None:
        return Unknown(text=lw.text(node))
    named = bound.name == "named_parameters"
    return Obj(
        key=(bound.name, owner.key), kind="parameters", info=owner, made=None, cls="named" if named else None, text=lw.text(node)
    )


def _modules(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`module.modules()` and its like: each one stands for a part of the module, as its parameters do."""
    owner = module_of(bound.receiver)
    if owner is None or attribute_path(bound.receiver) or lw.looking is not None:
        return None
    named = "named" if bound.name.startswith("named") else None
    return Obj(key=(bound.name, owner.key), kind="parameters", info=owner, cls=named, text=lw.text(node))


@CONTRACTS.of("builtins.filter")
def _filter(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`filter(test, values)`: some of the values."""
    return args[1] if len(args) > 1 and owners_of(args[1])[0] else generic(args, kwargs, lw.text(node))


@CONTRACTS.of("itertools.chain")
def _chain(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`chain(a, b)`: parameters of several modules are kept apart; other things count as the first."""
    if any(owners_of(a)[0] for a in args):
        return Items(items=tuple(args), kind="list", many=True, taint=join_taint(*args))
    lists = [a for a in args if isinstance(a, Items) and a.keys is None]
    if not args or len(lists) < len(args):
        return args[0] if args else Items(kind="list")
    taint, deps = join_taint(*lists), join_deps(*lists)
    if any(one.many or one.filled for one in lists):
        last = tuple(one.items[-1] for one in lists if one.items)
        filled = any(map(is_filled, lists))
        return bounded_list(Items(items=last[-1:], kind="list", many=True, taint=taint, deps=deps, filled=filled))
    return bounded_list(Items(items=tuple(item for one in lists for item in one.items), kind="list", taint=taint, deps=deps))


def _grow(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`groups.append(parameters)` on a list, and `layers.append(layer)` on a module list."""
    growing = isinstance(bound.receiver, Items) or the_object(bound.receiver, "parameters") is not None
    if isinstance(node.func, ast.Attribute) and growing and args and owners_of(args[0])[0]:
        added = joined_parameters(bound.receiver, args[0] if bound.name == "extend" else Items(items=(args[0],), kind="list"))
        if added is not None:
            keep_written(lw, node.func.value, added)
        return Const(value=None)
    held = as_list(bound.receiver)
    if isinstance(node.func, ast.Attribute) and held is not None and args:
        keep_written(lw, node.func.value, grown(lw, held, bound.name, args[0]))
        return Const(value=None)
    if bound.name == "append" or (args and is_filled(args[0])):
        put(lw, node)
    return _add(lw, node, bound, args, kwargs) if the_object(bound.receiver, "module") is not None else None


def put(lw: Lowering, node: ast.Call) -> None:
    """Take an element into a container that is not a list: `seen.add(name)`, `found[key].append(x)`."""
    place = node.func.value if isinstance(node.func, ast.Attribute) else None
    if isinstance(place, ast.Subscript):  # a default dict makes the element that it is asked for
        place = place.value
    if isinstance(place, (ast.Name, ast.Attribute)) and (now := with_some(lw, lw.eval(place))) is not None:
        keep_written(lw, place, now)


def _insert(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`found.insert(0, x)`, `seen.add(x)`, `kept.setdefault(key, [])`: one element more at the least."""
    held = as_list(bound.receiver) if bound.name == "insert" and len(args) > 1 else None
    if isinstance(node.func, ast.Attribute) and held is not None and (lw.loops or held.many):
        keep_written(lw, node.func.value, grown(lw, held, "append", args[1]))
        return Const(value=None)
    elements = bound.receiver if bound.name == "add" and args else None
    if isinstance(elements, Items) and elements.kind == "set" and not elements.many and isinstance(node.func, ast.Attribute):
        keep_written(lw, node.func.value, grown(lw, elements, "append", args[0]))
        return Const(value=None)
    put(lw, node)
    return _add(lw, node, bound, args, kwargs) if bound.name == "insert" else None


def _shrink(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`best.pop()`: a list that a loop fills has an element less."""
    held = as_list(bound.receiver)
    if isinstance(node.func, ast.Attribute) and held is not None and (held.filled or lw.loops):
        emptied = replace(held, many=True, filled=False)
        keep_written(lw, node.func.value, emptied if bound.name == "clear" else shortened(lw, held))
    elif isinstance(node.func, ast.Attribute) and (less := without_some(bound.receiver)) is not None:
        keep_written(lw, node.func.value, less)
    elif isinstance(node.func, ast.Attribute) and isinstance(bound.receiver, Items) and bound.receiver.kind == "set":
        keep_written(lw, node.func.value, replace(bound.receiver, many=True, filled=False))
    return None


# ---- gradients on and off


def _requires_grad(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    value = args[0] if args else kwargs.get("requires_grad", Const(value=True))
    set_requires_grad(lw, node, bound.receiver, value)
    return bound.receiver


# ---- changes after the wrap


def _add(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    owner = module_of(bound.receiver)
    if owner is None or attribute_path(bound.receiver):
        return None
    for value in (*args, *kwargs.values()):
        for option in options(value):
            if isinstance(option, Obj) and option.kind == "module":
                if inside_wrapper(lw, owner) is not None:
                    lw.emit(node, ModuleChange(target=owner, value=option, what="added", name=bound.name))
                lookup.adopt(lw, owner, option)
    return Const(value=None)


def _reparametrised(name: str) -> Contract:
    def call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value:
        module = given(name, args, kwargs).get(parameters(name)[0], Unknown())
        target = inside_wrapper(lw, module)
        if target is not None:
            lw.emit(node, ModuleChange(target=target, what="reparametrised", name=name.rsplit(".", 1)[-1]))
        return module

    return call


CONTRACTS.names.update({name: _reparametrised(name) for name in named("changes-parameters")})


# ---- weights loaded, drawn and written


def _apply(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`module.apply(function)`: the function is followed with the module itself, which stands for all modules inside it."""
    from ddp_audit.program.calls import dispatch

    module = the_object(bound.receiver, "module", "ddp")
    function = args[0] if args else kwargs.get("fn")
    if module is not None and isinstance(function, Func):
        part = Obj(key=("modules", module.key), kind="parameters", info=module, cls=None, text=lw.text(node))
        dispatch(lw, node, function, [element_of_parameters(part)], {})
    return bound.receiver


def _of_library(lw: Lowering, bound: Bound) -> tuple[Obj, str] | None:
    """The module whose library base `super()` stands for, and that base."""
    target = the_object(bound.receiver.receiver, "module") if isinstance(bound.receiver, Bound) else None
    if target is None or not isinstance(bound.receiver, Bound) or bound.receiver.name != "super" or lw.here.owner is None:
        return None
    found = [option.name for base in lw.here.owner.bases for option in options(base) if isinstance(option, Ext)]
    return (target, found[0]) if found else None


def _made_by_library(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`super().__init__(..)` of a class that adds to a layer or a loss function of a library."""
    base = _of_library(lw, bound)
    if base is not None:
        lw.given_to_base[base[0].key] = given(base[1], args, kwargs)
    return None


def run_by_library(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`super().forward(..)`: what the layer of the library gives with what it was made with."""
    base = _of_library(lw, bound)
    if base is None or lw.looking is not None:
        return None
    by = Made(base[1], tuple(args), tuple({**lw.given_to_base.get(base[0].key, {}), **kwargs}.items()))
    values = generic(args, kwargs)
    return Unknown(taint=values.taint, deps=values.deps, text=lw.text(node), by=by)


def _reset(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    module = module_of(bound.receiver)
    if module is not None:
        lw.emit(node, ParameterWrite(target=module, what="drawn"))
    return Const(value=None)


def _write(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`parameter.data.copy_(value)` and its like; not on a gradient."""
    drawn = is_kind(bound.name, "draws-in-place")
    if bound.name == "copy_" and args and not owners_of(bound.receiver)[0]:
        copy_into(lw, bound.receiver, args[0])
    note_write(lw, node, bound.receiver, "drawn" if drawn else "written")
    if bound.name == "zero_" and isinstance(bound.receiver, Bound) and bound.receiver.name == "grad":
        note_cleared(lw, node, bound.receiver.receiver)
    if drawn:
        note_random(lw, node, "torch", kwargs)
    return None


# ---- gradients reduced by hand


def _scaled(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if args:
        note_scale(lw, node, bound.receiver, "/" if bound.name.startswith("div") else "*", args[0])
    return _write(lw, node, bound, args, kwargs) if bound.name == "mul_" else None


CONTRACTS.methods.update(
    parameters=_parameters, named_parameters=_parameters, modules=_modules, named_modules=_modules, children=_modules,
    named_children=_modules, requires_grad_=_requires_grad,
    apply=_apply, __init__=_made_by_library,
    reset_parameters=_reset, append=_grow, extend=_grow, div=_scaled, div_=_scaled, mul_=_scaled,
    **dict.fromkeys(("pop", "popleft", "popitem", "remove", "discard", "clear"), _shrink),
    **dict.fromkeys(kinds()["writes-parameter"] | kinds()["draws-in-place"], _write), **dict.fromkeys(_ADDS, _add),
    **dict.fromkeys(("insert", "add", "setdefault"), _insert),
)  # fmt: skip
