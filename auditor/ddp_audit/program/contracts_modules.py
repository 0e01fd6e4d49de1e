"""What calls of torch do to modules: parameters handed out, gradients switched, weights loaded or drawn, layers replaced."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.knowledge.functions import given, named, parameters
from ddp_audit.knowledge.kinds import is_kind, kinds
from ddp_audit.program import lookup
from ddp_audit.program.changes import inside_wrapper, joined_parameters, note_scale, note_write, set_requires_grad
from ddp_audit.program.contracts import Contract, Contracts, generic
from ddp_audit.program.contracts_random import note_random
from ddp_audit.program.functions import keep_list
from ddp_audit.program.made import FILLED
from ddp_audit.program.modules import attribute_path, module_of, owners_of
from ddp_audit.program.nodes import ModuleChange, ParameterWrite
from ddp_audit.program.operations import bounded_list
from ddp_audit.program.values import (
    Bound,
    Const,
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

CONTRACTS = Contracts()

_MOST_ITEMS = 16  # of a list that is filled one by one
_ADDS = ("add_module", "register_module", "register_parameter", "insert", "set_submodule")


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
    return args[0] if args else Items(kind="list")


def _as_list(value: Value) -> Items | None:
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
    return Items(items=items[-1:], kind="list", many=True, taint=value.taint, deps=join_deps(*lists), count=count)


def _grown(lw: Lowering, held: Items, how: str, added: Value) -> Items:
    """A list after append() or extend(): outside of loops with one element more, inside of one with any number of them."""
    taint, deps = held.taint | added.taint, held.deps | added.deps
    if how == "extend":
        known = isinstance(added, Items) and added.keys is None and not added.many
        more: tuple[Value, ...] = added.items if isinstance(added, Items) and added.keys is None else (_element(added),)
    else:
        known, more = True, (added,)
    if known and not held.many and not lw.loops and len(held.items) < _MOST_ITEMS:
        return bounded_list(Items(items=(*held.items, *more), kind=held.kind, taint=taint, deps=deps))
    count = _count_after(lw, held, added if how == "extend" else None)
    items = (*held.items[-1:], *more[-1:])
    return bounded_list(Items(items=items, kind=held.kind, many=True, taint=taint, deps=deps, count=count))


def _count_after(lw: Lowering, held: Items, added: Value | None) -> Value | None:
    """How many elements a list has that a loop fills, as far as why that can differ; None where that is another matter."""
    parts = [held] if added is None else [held, added]
    if any(isinstance(one, Items) and one.many and one.count is None for one in parts):
        return None
    counts = [(one.count or Unknown()) if isinstance(one, Items) else one for one in parts]
    by = Made(FILLED, (lw.loops[-1].over,)) if lw.loops else None
    return Unknown(taint=join_taint(*counts).union(*(loop.taint for loop in lw.loops)), by=by)


def _element(value: Value) -> Value:
    """One element of a sequence of which nothing else is known."""
    return Unknown(taint=value.taint, deps=value.deps, text=f"{value.text}[..]" if value.text else "")


def _grow(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`groups.append(parameters)` on a list, and `layers.append(layer)` on a module list."""
    growing = isinstance(bound.receiver, Items) or the_object(bound.receiver, "parameters") is not None
    if isinstance(node.func, ast.Attribute) and growing and args and owners_of(args[0])[0]:
        added = joined_parameters(bound.receiver, args[0] if bound.name == "extend" else Items(items=(args[0],), kind="list"))
        if added is not None:
            keep_list(lw, node.func.value, added)
        return Const(value=None)
    held = _as_list(bound.receiver)
    if isinstance(node.func, ast.Attribute) and held is not None and args:
        keep_list(lw, node.func.value, _grown(lw, held, bound.name, args[0]))
        return Const(value=None)
    return _add(lw, node, bound, args, kwargs) if the_object(bound.receiver, "module") is not None else None


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
        dispatch(lw, node, function, [module], {})
    return bound.receiver


def _reset(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    module = module_of(bound.receiver)
    if module is not None:
        lw.emit(node, ParameterWrite(target=module, what="drawn"))
    return Const(value=None)


def _write(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`parameter.data.copy_(value)` and its like; not on a gradient."""
    drawn = is_kind(bound.name, "draws-in-place")
    note_write(lw, node, bound.receiver, "drawn" if drawn else "written")
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
    apply=_apply, reset_parameters=_reset, append=_grow, extend=_grow, div=_scaled, div_=_scaled, mul_=_scaled,
    **dict.fromkeys(kinds()["writes-parameter"] | kinds()["draws-in-place"], _write), **dict.fromkeys(_ADDS, _add),
)  # fmt: skip
