"""What calls of libraries mean: dispatch by full name, by method name, and the contracts of Python's own library.

A contract is a function (lowering, call, arguments, keyword arguments) -> value. They stand in the files `contracts_*.py`, and
`registry.py` lists them all. A call without a contract gives an unknown value that carries the taint and the forwards of its
arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ddp_audit.knowledge import words
from ddp_audit.knowledge.framework import frameworks
from ddp_audit.knowledge.functions import given, reasons, returned
from ddp_audit.program import names
from ddp_audit.program.code import names_in_file
from ddp_audit.program.nodes import DeviceChoice, UnfollowedCall, Wrap
from ddp_audit.program.state import ClassInfo
from ddp_audit.program.uses import element_of, note_use
from ddp_audit.program.values import (
    UNIFORM,
    Bound,
    Const,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Taint,
    Unknown,
    Value,
    join_deps,
    join_taint,
    options,
    the_object,
    uniform,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

Contract = Callable[["Lowering", ast.Call, list[Value], dict[str, Value]], Value]
MethodContract = Callable[["Lowering", ast.Call, Bound, list[Value], dict[str, Value]], "Value | None"]
Family = Callable[["Lowering", ast.Call, str, list[Value], dict[str, Value]], "Value | None"]


@dataclass(slots=True)
class Contracts:
    """Contracts by the full name of a library's function or class, by the name of a method, and for families of names.

    `kinds` are those of the methods of one kind of object, which come before those by the name alone.
    """

    names: dict[str, Contract] = field(default_factory=dict)
    methods: dict[str, MethodContract] = field(default_factory=dict)
    kinds: dict[tuple[str, str], MethodContract] = field(default_factory=dict)
    families: list[Family] = field(default_factory=list)  # asked where `names` has none

    def of(self, *full_names: str) -> Callable[[Contract], Contract]:
        """Return a decorator that makes a function the contract of some names."""

        def register(function: Contract) -> Contract:
            self.names.update(dict.fromkeys(full_names, function))
            return function

        return register


def generic(args: list[Value], kwargs: dict[str, Value], text: str = "", taint: Taint = UNIFORM, name: str = "?") -> Unknown:
    """An unknown value that carries what its arguments carry. `name` is what made it."""
    values = [*args, *kwargs.values()]
    by = Made(name, tuple(args), tuple(kwargs.items()))
    return Unknown(taint=join_taint(*values) | taint, deps=join_deps(*values), text=text, by=by)


def numbered(args: Sequence[Value], kwargs: Mapping[str, Value]) -> dict[str, Value]:
    """Arguments by position and name, as a node holds them."""
    return {**{str(i): a for i, a in enumerate(args)}, **kwargs}


def call_library(lw: Lowering, node: ast.Call, function: Ext, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a library function by its full name."""
    if "device" in kwargs and function.name.startswith("torch."):
        from ddp_audit.program.contracts_torch import note_current_device

        note_current_device(lw, node, kwargs["device"])
    known = lw.contracts.names.get(function.name)
    if known is not None:
        lw.calling = function.name
        return known(lw, node, args, kwargs)
    back = returned(function.name, args, kwargs)
    if back is not None:
        return Const(value=back[1], text=lw.text(node)) if back[0] is None else back[0]
    for family in lw.contracts.families:
        made = family(lw, node, function.name, args, kwargs)
        if made is not None:
            return made
    last = function.name.rsplit(".", 1)[-1]
    if not function.name.startswith(("torch.", "builtins.")):
        method = lw.contracts.methods.get(last)
        if method is not None and last in ("no_sync", "backward"):
            result = method(lw, node, Bound(receiver=Unknown(), name=last), args, kwargs)
            if result is not None:
                return result
    guess = _rank_call(last, bare=not args and not kwargs)
    if guess is not None and not function.name.startswith(("os.", "builtins.")):
        return guess
    if taint := reasons(function.name):
        return generic(args, kwargs, lw.text(node), taint, function.name)
    if lw.in_question(function.name) and not _stays_here(function.name):
        lw.emit(node, UnfollowedCall(name=function.name))
    result = generic(args, kwargs, lw.text(node), name=function.name)
    if _runs_the_job(function.name):
        return replace(result, taint=UNIFORM)  # what it says of the job does not follow from its settings
    return uniform(result, function.name) if makes_equal(function.name) else result


def _runs_the_job(name: str) -> bool:
    """Whether a call makes the object of a framework that prepares models and loaders for all ranks."""
    return any(kind.prepares and kind.makes(name) for framework in frameworks().values() for kind in framework.objects)


_NO_RANKS = ("torch.", "functools.", "einops.", "numpy.", "jax.", "tensorflow.", "builtins.", "asyncio.")
_RANKS_OF_TORCH = ("torch.distributed.", "torch.nn.parallel.", "torch.multiprocessing.", "torch.cuda.nccl.", "torch.cuda.comm.")


def _stays_here(name: str) -> bool:
    """Whether a function belongs to a library whose functions work on one process, as `torch.cuda.synchronize` does."""
    return name.startswith(_NO_RANKS) and not name.startswith(_RANKS_OF_TORCH)


def makes_equal(name: str) -> bool:
    """Whether a function that cannot be followed says by its name that the ranks agree on what it gives: `reduce_dict`."""
    return not name.startswith(_NO_RANKS) and words.says(name.rsplit(".", 1)[-1], "makes-equal")


def _rank_call(name: str, bare: bool = False) -> Value | None:
    """A rank helper of some library, by the name of the function: `comm.get_rank()`, `is_main_process()`.

    A function that is called without arguments (`bare`) may be called by the number itself: the rank of a matrix needs the matrix.
    """
    return names.by_name(name.removeprefix("get_")) if bare or name.startswith(("get_", "is_")) else None


def method_call(lw: Lowering, node: ast.Call, bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of a method by its name, on an object of a library or on something unknown."""
    if lw.looking is not None:
        touched = _whole_module(lw, node, bound)
        if touched is not None:
            return touched
    target = the_object(bound.receiver)
    of_kind = None if target is None else lw.contracts.kinds.get((target.kind, bound.name))
    for known in (of_kind, lw.contracts.methods.get(bound.name)):
        result = None if known is None else known(lw, node, bound, args, kwargs)
        if result is not None:
            return result
    guess = _rank_call(bound.name)
    if guess is not None and not args:
        return guess
    if target is not None and target.kind in ("module", "ddp", "optimizer", "sampler", "loader"):
        return Unknown(
            taint=join_taint(*args), deps=join_deps(bound, *args), text=lw.text(node), by=method_made(bound, args, kwargs)
        )
    if any(isinstance(o, Func) for o in args):
        return generic(args, kwargs, lw.text(node))
    values = generic(args, kwargs)
    taint, deps = values.taint | bound.receiver.taint, values.deps | bound.receiver.deps | bound.deps
    return Unknown(taint=taint, deps=deps, text=lw.text(node), by=method_made(bound, args, kwargs))


def _whole_module(lw: Lowering, node: ast.Call, bound: Bound) -> Value | None:
    """A method of a module of which nothing more is known, during a look inside: it may touch all that is in it."""
    target = the_object(bound.receiver, "module")
    if target is None and isinstance(bound.receiver, Bound) and bound.receiver.name == "super":
        target = the_object(bound.receiver.receiver, "module")
    if target is None:
        return None
    note_use(lw, node, target, whole=True)
    return element_of(lw, target) if bound.name in ("values", "items", "children", "get") else None


def method_made(bound: Bound, args: list[Value], kwargs: dict[str, Value]) -> Made:
    """What a method's result was made by."""
    return Made(bound.name, (bound.receiver, *args), tuple(kwargs.items()))


def unknown_call(lw: Lowering, node: ast.Call, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """A call of something that is not known at all."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    guess = _rank_call(name) if not args else None
    if guess is not None:
        return guess
    result = generic(args, kwargs, lw.text(node))
    if makes_equal(name):
        return uniform(result, name)
    by = Made("?", (function, *args), tuple(kwargs.items()))
    return Unknown(taint=result.taint | function.taint, deps=result.deps | function.deps, text=result.text, by=by)


def mentions_collectives(info: ClassInfo) -> bool:
    """Whether the file that defines a class speaks of collectives at all."""
    return any(words.says(name, "collectives") for name in names_in_file(info.frame.source))


def wrap(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value], style: str) -> Value:
    """A DDP constructor, of torch or one that looks like it."""
    arguments = given("torch.nn.parallel.DistributedDataParallel", args, kwargs)
    module = arguments.get("module", kwargs.get("model", Unknown()))
    span = lw.span(node)
    kind = "ddp" if style == "ddp" else "other-wrapper"
    wrapper = Obj(
        key=("wrap", span, lw.way()),
        kind=kind,
        cls=None if style == "ddp" else style,
        made=span,
        info=module,
        text=lw.text(node),
    )
    if style == "ddp":
        for option in options(module):
            if isinstance(option, Obj):
                lw.wrapped[option.key] = wrapper
    lw.emit(node, Wrap(target=wrapper, args={**arguments, "module": module}, style=style))
    devices = arguments.get("device_ids")
    if isinstance(devices, Items) and len(devices.items) == 1:
        where = next((k.value for k in node.keywords if k.arg == "device_ids"), node)
        lw.emit(where, DeviceChoice(index=devices.items[0], via="device_ids"))
    return wrapper
