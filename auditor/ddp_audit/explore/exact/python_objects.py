"""Python's questions about an object in an interpreted run: its attributes, and of what kind it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, optimizers, training
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, model
from ddp_audit.explore.exact.values import (
    PLAIN,
    Class,
    Error,
    Function,
    Instance,
    Lib,
    Method,
    Module,
    Native,
    Raised,
    Tensor,
    Unknown,
)
from ddp_audit.knowledge.libraries import since
from ddp_audit.program.lookup import canonical

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


@model("builtins.getattr")
def _getattr(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) < 2 or not isinstance(args[1], str):
        return Unknown()
    try:
        found = calls.attribute(it, args[0], args[1])
    except Raised as raised:
        if len(args) > 2 and calls.matches(raised.value, _NO_ATTRIBUTE):
            return args[2]
        raise
    missing = isinstance(found, Unknown) and not isinstance(args[0], (Unknown, Lib))
    return args[2] if missing and len(args) > 2 else found


@model("builtins.delattr")
def _delattr(it: Interpreter, args: Args, kwargs: Kwargs) -> None:
    if len(args) == 2 and isinstance(args[1], str):
        calls.delete_attribute(it, args[0], args[1])


@model("builtins.setattr")
def _setattr(it: Interpreter, args: Args, kwargs: Kwargs) -> None:
    if len(args) == 3 and isinstance(args[1], str):
        calls.set_attribute(it, args[0], args[1], args[2])


@model("builtins.hasattr")
def _hasattr(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if isinstance(args[0], Lib) and isinstance(args[1], str):
        first = since(canonical(f"{args[0].name}.{args[1]}"))
        return Unknown("whether it has an attribute") if first is None else it.torch_version() >= first
    if isinstance(args[0], Unknown) or not isinstance(args[1], str):
        return Unknown("whether it has an attribute")
    try:
        return not isinstance(calls.attribute(it, args[0], args[1]), Unknown)
    except Raised as raised:
        if calls.matches(raised.value, _NO_ATTRIBUTE):
            return False
        raise


@model("builtins.isinstance")
def _isinstance(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    kinds = args[1] if isinstance(args[1], tuple) else (args[1],)
    answers = [_is_a(args[0], kind) for kind in kinds]
    if True in answers:
        return True
    return Unknown("what it is") if None in answers else False


_NO_ATTRIBUTE = Lib("builtins.AttributeError")
_PYTHON = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "set": set,
    "bytes": bytes,
}


def _is_a(value: Any, kind: Any) -> bool | None:
    """Whether a value is of a kind; None where that is not known."""
    if isinstance(value, Unknown) or isinstance(kind, Unknown):
        return None
    name = kind.name if isinstance(kind, Lib) else ""
    last = name.rsplit(".", 1)[-1]
    if name.startswith("builtins.") and last in _PYTHON:
        return isinstance(value, _PYTHON[last])
    if isinstance(value, training.Wrapper):
        return last in ("DistributedDataParallel", "Module")
    if isinstance(value, (Instance, Error)):
        return calls.matches(value, kind) or (
            isinstance(kind, Class) and isinstance(value, Instance) and kind in value.cls.lineage()
        )
    if isinstance(value, Module):
        if isinstance(kind, Class):
            return isinstance(value.cls, Class) and kind in value.cls.lineage()
        own = value.cls.outside_bases() if isinstance(value.cls, Class) else {str(value.cls)}
        return name == "torch.nn.Module" or last in {n.rsplit(".", 1)[-1] for n in own}
    if isinstance(value, Tensor):
        return last in ("Tensor", type(value).__name__, "Parameter" if type(value).__name__ == "Param" else "Tensor")
    if isinstance(value, optimizers.Optimizer):
        return last == "Optimizer"
    if isinstance(value, (*PLAIN, list, tuple, dict, set, frozenset, range)):
        return False if isinstance(kind, Class) or isinstance(value, PLAIN) or name.startswith("torch.") else None
    return None


@model("builtins.vars")
def _vars(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    held = getattr(args[0], "attrs", None) if args else None
    return held if isinstance(held, dict) else Unknown("vars")


@model("builtins.type")
def _type(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 1 and type(args[0]) in _TYPES:
        return Lib(f"builtins.{type(args[0]).__name__}")
    return args[0].cls if args and isinstance(args[0], (Instance, Module)) and isinstance(args[0].cls, Class) else Unknown("a type")


_TYPES = (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, range)


@model("builtins.callable")
def _callable(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return isinstance(args[0], (Function, Method, Native, Class, Module)) or Unknown("callable")


__all__ = ["CALLS"]
