"""copy.copy and copy.deepcopy in an interpreted run."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import layer_table, named, training
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, model
from ddp_audit.explore.exact.standard import Namespace
from ddp_audit.explore.exact.values import Class, Instance, Module, Unknown

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


def _module(it: Interpreter, value: Any) -> Any:
    """A copy of a module; anything else as it is."""
    copied = value.module if isinstance(value, training.Wrapper) else value
    if isinstance(copied, Module):
        for _ in copied.walk():
            it.tick()
        return layer_table.clone(copied)
    return value


@model("copy.deepcopy")
def _deep_copy(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _copied(it, args[0], {}) if args else Unknown()


@model("copy.copy")
def _shallow_copy(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    value = args[0] if args else Unknown()
    if isinstance(value, (list, dict, set)):
        it.makes(len(value))
        return value.copy()
    if isinstance(value, Instance):
        return Instance(value.cls, dict(value.attrs))
    return Namespace(dict(value.attrs)) if isinstance(value, Namespace) else _module(it, value)


def _copied(it: Interpreter, value: Any, made: dict[int, Any]) -> Any:
    """A copy with containers and objects of its own, each copied once."""
    if id(value) in made:
        return made[id(value)]
    it.makes(1)
    found: Any = None
    match value:
        case named.Record():
            return named.Record.of([_copied(it, part, made) for part in value], value.names, value.cls)
        case tuple():
            return tuple(_copied(it, part, made) for part in value)
        case list():
            found = made[id(value)] = []
            found.extend(_copied(it, part, made) for part in value)
        case set():
            found = made[id(value)] = value.copy()
        case defaultdict():
            found = made[id(value)] = defaultdict(value.default_factory)
            found.update({key: _copied(it, part, made) for key, part in value.items()})
        case dict():
            found = made[id(value)] = OrderedDict() if isinstance(value, OrderedDict) else {}
            found.update({key: _copied(it, part, made) for key, part in value.items()})
        case Namespace():
            found = made[id(value)] = Namespace({})
            found.attrs.update({key: _copied(it, part, made) for key, part in value.attrs.items()})
        case Instance() if isinstance(value.cls, Class):
            found = made[id(value)] = Instance(value.cls)
            found.attrs.update({key: _copied(it, part, made) for key, part in value.attrs.items()})
        case _:
            found = made[id(value)] = _module(it, value)
    return found


__all__ = ["CALLS"]
