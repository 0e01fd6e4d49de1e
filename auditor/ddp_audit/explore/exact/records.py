"""Objects with named fields in an interpreted run: dataclasses and what is asked of them, named tuples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, definitions, enums
from ddp_audit.explore.exact.contents import first_unknown, unknown
from ddp_audit.explore.exact.named import Record, filled
from ddp_audit.explore.exact.python_names import CALLS, Args, Kwargs, model
from ddp_audit.explore.exact.values import Class, Instance, Native, Unknown

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_DEEPEST = 16  # objects within one another that are made dicts of
_MOST_FIELDS = 256


@model("collections.namedtuple")
def _namedtuple(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    fields = args[1] if len(args) > 1 else kwargs.get("field_names")
    listed = fields.replace(",", " ").split() if isinstance(fields, str) else fields
    if not isinstance(listed, (list, tuple)) or not all(isinstance(n, str) for n in listed) or len(listed) > _MOST_FIELDS:
        return unknown(fields, why="a class")
    names, given = list(listed), kwargs.get("defaults")
    last = list(given) if isinstance(given, (list, tuple)) else []
    defaults = dict(zip(names[len(names) - len(last) :], last, strict=False))
    return Native(lambda *values, **named: filled(it, names, list(values), named, defaults, None), "a named tuple")


@model("enum.auto")
def _auto(it: Interpreter, args: Args, kwargs: Kwargs) -> enums.Auto:
    return enums.Auto()


# ---- dataclasses


def _fields(value: Any) -> list[str] | None:
    return [name for name, _ in value.cls.fields] if isinstance(value, Instance) and value.cls.fields is not None else None


@model("dataclasses.replace", "copy.replace")
def _replace(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    value, names = args[0] if args else None, _fields(args[0] if args else None)
    if isinstance(value, Record):
        return value.attribute(it, "_replace").call(**kwargs)
    if names is None or not isinstance(value, Instance):
        return unknown(*args, *kwargs.values(), why="an object")
    without = {name for name, default in value.cls.fields or [] if definitions.is_left_out(it, value.cls, default)}
    return calls.call(it, value.cls, [], {**{n: value.attrs.get(n, Unknown(n)) for n in names if n not in without}, **kwargs})


@model("dataclasses.asdict")
def _asdict(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    return _plain(it, args[0], 0) if args and _fields(args[0]) is not None else unknown(*args, why="a dict")


def _plain(it: Interpreter, value: Any, depth: int) -> Any:
    names = _fields(value)
    if depth > _DEEPEST:
        return unknown(value, why="an object")
    if names is not None:
        it.makes(len(names))
        return {name: _plain(it, value.attrs.get(name, Unknown(name)), depth + 1) for name in names}
    if isinstance(value, Record):
        return Record.of([_plain(it, part, depth + 1) for part in value], value.names, value.cls)
    if isinstance(value, (list, tuple)):
        it.makes(len(value))
        return type(value)([_plain(it, part, depth + 1) for part in value])
    if isinstance(value, dict):
        it.makes(len(value))
        return {key: _plain(it, part, depth + 1) for key, part in value.items()}
    return value


@model("dataclasses.astuple")
def _astuple(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    found = _asdict(it, args, kwargs)
    return tuple(found.values()) if isinstance(found, dict) else found


@model("dataclasses.fields")
def _fields_of(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    owner = args[0].cls if args and isinstance(args[0], Instance) else args[0] if args else None
    if not isinstance(owner, Class) or owner.fields is None:
        return unknown(*args, why="fields")
    return tuple(Record.of((name,), ("name",)) for name, _ in owner.fields)


@model("dataclasses.is_dataclass")
def _is_dataclass(it: Interpreter, args: Args, kwargs: Kwargs) -> Any:
    value = args[0] if args else None
    owner = value.cls if isinstance(value, Instance) else value
    return unknown(value, why="what it is") if first_unknown(value) else isinstance(owner, Class) and owner.fields is not None


__all__ = ["CALLS"]
