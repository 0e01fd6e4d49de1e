"""Containers of torch in an interpreted run: Sequential, lists and dicts of modules or parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact.contents import is_unknown, unknown
from ddp_audit.explore.exact.values import PLAIN, Class, Module, Param, Tensor, Unknown, error

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


def fill(made: Module, kind: str, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Puts what the constructor of a container was given into it."""
    items: Any = args
    if kind != "Sequential" or (len(args) == 1 and isinstance(args[0], (dict, list))):
        items = args[0] if args else []
    if isinstance(items, Module):
        items = entries(items) if kind.endswith("Dict") else list(entries(items).values())
    if isinstance(items, (list, tuple)) and kind.endswith("Dict"):
        items = _named(items)
    if isinstance(items, dict):
        pairs = list(items.items())
    elif isinstance(items, (list, tuple)):
        pairs = [(str(i), item) for i, item in enumerate(items)]
    else:
        made.opaque = True
        return
    for key, item in pairs:
        if isinstance(key, PLAIN):
            _hold(made, str(key), item)
        else:
            made.opaque = True


def _named(pairs: Any) -> dict[Any, Any] | None:
    """Pairs of a name and what has it, as a dict; None for what else there is."""
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], PLAIN) for pair in pairs):
        return None
    return dict(pairs)


def _hold(made: Module, key: str, item: Any) -> None:
    """Puts something into a container; a tensor in one of parameters becomes a parameter."""
    inner = getattr(item, "module", None)
    if isinstance(item, Module):
        made.children[key] = item
        made.attrs.pop(_slot(key), None)
    elif isinstance(inner, Module):  # a wrapper, which is registered with all that it holds
        made.children[key], made.attrs[_slot(key)] = inner, item
    elif isinstance(item, Tensor) and made.held is made.params:
        made.params[key] = item if isinstance(item, Param) else Param(item.shape, item.dtype, device="cpu")
    else:
        made.opaque = made.opaque or not isinstance(item, (*PLAIN, Tensor))


def _slot(key: str) -> str:
    """Where a container keeps the wrapper that it was given; no attribute has such a name."""
    return f"[{key}]"


def put(it: Interpreter, module: Module, key: Any, item: Any) -> None:
    """`container[key] = item`, or an element added at its end."""
    if isinstance(key, (str, int)):
        _hold(module, str(key), item)
    else:
        module.opaque = True
    it.effects += 1
    it.registered()


def iterated(module: Module) -> list[Any]:
    """The elements of a container: the keys of those that are dicts."""
    held = module.held
    return list(module.children.values()) if held is None else list(held) if _is_dict(module) else list(entries(module).values())


def _is_dict(module: Module) -> bool:
    return kind_of(module).endswith("Dict")


def kind_of(module: Module) -> str:
    """The container of torch that a module is, by its last name; empty where it is none."""
    names = module.cls.outside_bases() if isinstance(module.cls, Class) else {str(module.cls)}
    return next((name.rsplit(".", 1)[-1] for name in names if module.held is not None), "")


def remove(it: Interpreter, module: Module, key: Any) -> None:
    """`del container[key]`; what follows in a list moves up. Raises what torch raises where nothing is there."""
    held = entries(module)
    names = list(held)
    is_place = isinstance(key, int) and -len(names) <= key < len(names)
    name = names[key] if is_place else key
    if isinstance(name, str) and name in held:
        kept = {other: item for other, item in held.items() if other != name}
        if is_place and (kind_of(module) != "Sequential" or all(other.isdecimal() for other in names)):
            kept = {str(number): item for number, item in enumerate(kept.values())}
        (module.children if module.held is None else module.held).clear()
        for other in names:
            module.attrs.pop(_slot(other), None)
        for other, item in kept.items():
            _hold(module, other, item)
    else:
        _is_missing(module, key)
        module.opaque = True
    it.effects += 1
    it.registered()


def _is_missing(module: Module, key: Any, name: str = "KeyError") -> None:
    """Raises what torch raises where a container has nothing under a key, as far as it is known."""
    if module.held is None or module.opaque:
        return
    if isinstance(key, str) and _is_dict(module):
        raise error(name, key)
    if isinstance(key, int) and not _is_dict(module):
        raise error("IndexError", f"index {key} is out of range")


def append(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
    """`append`."""
    for item in args:
        put(it, module, len(entries(module)), item)
    return module


def extend(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> Module:
    """`extend`."""
    given = args[0] if args else None
    if isinstance(given, Unknown) or given is None:
        module.opaque = True
        return module
    for item in list(it.iterate(given)):
        put(it, module, len(entries(module)), item)
    return module


def update(it: Interpreter, module: Module, args: list[Any], kwargs: dict[str, Any]) -> None:
    """`update` of a ModuleDict or ParameterDict."""
    given = args[0] if args else {}
    if not isinstance(given, (Module, dict, list)):
        module.opaque = True
        return
    more = given.held if isinstance(given, Module) else _named(given.items() if isinstance(given, dict) else given)
    if more is None:
        module.opaque = True
    for key, item in (more or {}).items():
        put(it, module, key, item)


def entries(module: Module) -> dict[str, Any]:
    """What a container holds by name; of another module, the modules in it."""
    if module.held is None:
        return module.children
    return {key: module.attrs.get(_slot(key), item) for key, item in module.held.items()} if module.attrs else module.held


__all__ = ["append", "entries", "extend", "fill", "iterated", "kind_of", "put", "update"]


def child(owner: Module, index: Any) -> Any:
    """`owner[index]` of a container of modules or parameters."""
    if owner.held is None:
        return unknown(index)
    held = entries(owner)
    if isinstance(index, int):
        items = list(held.values())
        if -len(items) <= index < len(items):
            return items[index]
    if isinstance(index, slice) and not is_unknown(index):
        made = Module(owner.cls, opaque=owner.opaque)
        taken: Any = made.held
        taken.update({str(number): item for number, item in enumerate(list(held.values())[index])})
        return made
    if isinstance(index, str) and index in held:
        return held[index]
    _is_missing(owner, index, "AttributeError" if kind_of(owner) == "ParameterDict" else "KeyError")
    return Unknown()
