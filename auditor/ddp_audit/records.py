"""`dataclass` for the classes of an audit: to readers and type checkers that of the standard library, at run time a cheaper one.

The standard one compiles up to six functions for a class, which for all classes of an audit took a third of the audit of a script,
and sets each attribute of a frozen object by a call. Here `__init__` is compiled when a class is first used, the other functions
are closures, slots are always made, and that nobody writes to what is frozen is left to the type checker. What else holds of
dataclasses holds here: defaults and factories, inheritance, `__post_init__`, equality and hashes, `match`, and the functions of
`dataclasses`.
"""

from __future__ import annotations

from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import asdict, dataclass, field, replace
else:

    def dataclass(*, slots, frozen=False, eq=True):
        """Makes a class of annotated attributes a dataclass. `slots` has to be given, and true, to say so to type checkers."""
        assert slots
        return lambda cls: _made(cls, frozen, eq)

    def field(**options):
        """An attribute with options, as `dataclasses.field`."""
        return _Field(**options)

    def replace(record, /, **changes):
        """A copy with some attributes changed, as `dataclasses.replace`."""
        cls = record.__class__
        fields = cls._record_fields
        copy = cls.__dict__.get("_record_copy") or _copier(cls)
        if copy is _MADE or not changes.keys() <= fields.keys():
            return cls(**{name: getattr(record, name) for name, part in fields.items() if part.init} | changes)
        new = cls.__new__(cls)
        copy(record, new)
        for name, value in changes.items():
            setattr(new, name, value)
        return new

    def asdict(record):
        """The attributes by name, as `dataclasses.asdict`; values that are no records or plain collections are not copied."""
        return {name: _plain(getattr(record, name)) for name in record._record_fields}


_MADE = "made by the constructor"
_NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "<factory>"})()


class _Field:
    __slots__ = ("compare", "default", "default_factory", "init", "kind", "repr")

    def __init__(
        self,
        default: Any = _NOTHING,
        default_factory: Any = _NOTHING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare = init, repr, compare
        self.kind = ""  # the annotation


def _made(cls: Any, frozen: bool, eq: bool) -> Any:
    fields: dict[str, _Field] = {}
    for base in cls.__mro__[:0:-1]:
        if "__dataclass_fields__" in base.__dict__ and "_record_fields" not in base.__dict__:
            raise TypeError(f"{cls.__name__}: the base {base.__name__} is a dataclass of the standard library")
        fields |= base.__dict__.get("_record_fields", {})
    slots = []
    for name, kind in cls.__annotations__.items():
        if "ClassVar[" in str(kind):
            continue
        if name not in fields:
            slots.append(name)
        given = cls.__dict__.get(name, _NOTHING)
        fields[name] = given if isinstance(given, _Field) else _Field(given)
        fields[name].kind = kind
    body = {name: value for name, value in cls.__dict__.items() if name not in fields and name not in ("__dict__", "__weakref__")}
    body |= {"__slots__": tuple(slots), "__qualname__": cls.__qualname__}
    body |= {"_record_fields": fields, "__dataclass_fields__": _Standard()}
    body |= {"__match_args__": tuple(name for name, part in fields.items() if part.init)}
    body.setdefault("__repr__", recursive_repr("...")(_represented))
    if eq:
        _compare(body, [name for name, part in fields.items() if part.compare], frozen)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    if "__init__" not in body:

        def first(self: Any, /, *args: Any, **named: Any) -> None:
            made.__init__ = _initializer(made)
            made.__init__(self, *args, **named)

        made.__init__ = first
    return made


def _initializer(cls: Any) -> Any:
    parameters, lines = ["self"], []
    scope: dict[str, Any] = {"_nothing": _NOTHING, "__name__": __name__}
    for name, part in cls._record_fields.items():
        value = name
        if part.default_factory is not _NOTHING:
            scope[f"_make_{name}"] = part.default_factory
            parameters.append(f"{name}=_nothing")
            value = f"_make_{name}() if {name} is _nothing else {name}" if part.init else f"_make_{name}()"
        elif part.default is not _NOTHING:
            scope[f"_default_{name}"] = part.default
            parameters.append(f"{name}=_default_{name}")
            value = name if part.init else f"_default_{name}"
        elif part.init:
            parameters.append(name)
        else:
            continue
        if not part.init:
            parameters.pop()
        lines.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines or ["pass"]), scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _copier(cls: Any) -> Any:
    """What copies every attribute; _MADE for a class whose constructor does more than set attributes."""
    plain = not hasattr(cls, "__post_init__") and all(part.init for part in cls._record_fields.values())
    if plain and getattr(cls.__init__, "__module__", "") == __name__:
        scope: dict[str, Any] = {}
        lines = [f"new.{name} = old.{name}" for name in cls._record_fields] or ["pass"]
        exec("def copy(old, new):\n  " + "\n  ".join(lines), scope)
        cls._record_copy = scope["copy"]
    else:
        cls._record_copy = _MADE
    return cls._record_copy


def _compare(body: dict[str, Any], names: list[str], frozen: bool) -> None:
    """Adds equality, and with it the hash of what is frozen; what else is equal by value has none."""
    key: Any = attrgetter(*names) if names else lambda _: ()

    def equals(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(key(self))

    own_hash = "__hash__" in body and not (body["__hash__"] is None and "__eq__" in body)
    body.setdefault("__eq__", equals)
    if not own_hash:
        body["__hash__"] = hashed if frozen else None


def _represented(self: Any) -> str:
    parts = (f"{name}={getattr(self, name)!r}" for name, part in self._record_fields.items() if part.repr)
    return f"{self.__class__.__qualname__}({', '.join(parts)})"


def _plain(value: Any) -> Any:
    if hasattr(value, "_record_fields"):
        return asdict(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    return {name: _plain(part) for name, part in value.items()} if isinstance(value, dict) else value


class _Standard:
    """The fields as the functions of `dataclasses` want them, made when one of those asks."""

    def __get__(self, record: Any, cls: Any) -> dict[str, Any]:
        import dataclasses

        fields = []
        for name, part in cls._record_fields.items():
            options = {key: getattr(part, key) for key in ("init", "repr", "compare")}
            for key in ("default", "default_factory"):
                if getattr(part, key) is not _NOTHING:
                    options[key] = getattr(part, key)
            fields.append((name, part.kind, dataclasses.field(**options)))
        made: Any = dataclasses.make_dataclass(cls.__name__, fields)
        cls.__dataclass_fields__ = made.__dataclass_fields__
        return dict(made.__dataclass_fields__)


__all__ = ["asdict", "dataclass", "field", "replace"]
