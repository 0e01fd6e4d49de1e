"""Objects of project classes that are dicts, such as configurations whose keys are read as attributes; keys of dicts as sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls
from ddp_audit.explore.exact.contents import is_unknown, unknown
from ddp_audit.explore.exact.values import MISSING, Class, Function, Instance, Method, Module, Native, Unknown, View, error

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_DICTS = frozenset({"builtins.dict", "collections.OrderedDict", "collections.UserDict", "typing.Dict"})


class OwnDict(dict[Any, Any]):
    """A dict of a project class. `attrs` are its attributes, which may be the dict itself (`self.__dict__ = self`)."""

    cls: Class
    attrs: dict[Any, Any]

    def attribute(self, it: Interpreter, name: str) -> Any:
        """An attribute, a method of its class or of dicts, or what its `__getattr__` gives."""
        if name == "__dict__":
            return self.attrs
        if name in self.attrs:
            return self.attrs[name]
        found = self.cls.find(name)
        if found is not MISSING:
            return calls.bound(it, found, self)
        if hasattr(dict, name) and not name.startswith("__"):
            return calls.native_method(it, self, name)
        return self._by_key(it, "__getattr__", dict.__getitem__, name, name)

    def set_attribute(self, it: Interpreter, name: str, value: Any) -> None:
        """`owner.name = value`."""
        if name == "__dict__" and isinstance(value, dict):
            self.attrs = value
        elif self.cls.find("__setattr__") is MISSING:
            self.attrs[name] = value
        else:
            self._by_key(it, "__setattr__", dict.__setitem__, name, name, value)

    def _by_key(self, it: Interpreter, method: str, plain: Any, name: str, *given: Any) -> Any:
        """What a method for attributes gives: a function of the project, or a method of dict under that name."""
        found = self.cls.find(method)
        if isinstance(found, Function):
            return calls.call(it, Method(found, self), list(given), {})
        if isinstance(found, Unknown) or found is MISSING:
            return Unknown(name)
        try:  # `__getattr__ = dict.get` and its like
            return plain(self, *given)
        except KeyError:
            return None if getattr(found, "name", "").endswith(".get") else Unknown(name)


def is_dict(cls: Class) -> bool:
    """Whether objects of a class are dicts."""
    return bool(cls.outside_bases() & _DICTS)


def make(it: Interpreter, cls: Class, args: list[Any], kwargs: dict[str, Any]) -> OwnDict:
    """An object of a class that descends from dict."""
    made = OwnDict()
    made.cls, made.attrs = cls, {}
    init = cls.find("__init__")
    if isinstance(init, Function):
        calls.invoke(it, init, args, kwargs, made)
    else:
        filled(it, made, args, kwargs)
    return made


def filled(it: Interpreter, made: OwnDict, args: list[Any], kwargs: dict[str, Any]) -> None:
    """What `dict.__init__` puts into it."""
    made.update(kwargs)
    for given in args[:1]:
        pairs = (
            given if isinstance(given, dict) else it.hashed(dict, listed) if isinstance(listed := it.listed(given), list) else {}
        )
        made.update(pairs if isinstance(pairs, dict) else {})


def _held(owner: OwnDict, key: Any) -> Any:
    if is_unknown(key):
        return unknown(owner, key, why="a value")
    if key not in owner:
        raise error("KeyError", str(key))
    return owner[key]


def own_method(owner: Any, name: str) -> Method | None:
    """What the project's class of an object says of an operator, such as `__getitem__`; None where it says nothing."""
    if isinstance(owner, (Instance, Module, OwnDict)) and isinstance(owner.cls, Class):
        method = owner.cls.find(name)
        return Method(method, owner) if isinstance(method, Function) else None
    return None


def getter(owner: Any, key: Any) -> Method | None:
    """What gives `owner[key]` where the project's class says: `__getitem__`, or `__missing__` for a key that is not there."""
    if isinstance(owner, OwnDict) and own_method(owner, "__getitem__") is None and not is_unknown(key) and key not in owner:
        return own_method(owner, "__missing__")
    return own_method(owner, "__getitem__")


def of_super(it: Interpreter, owner: OwnDict, name: str) -> Any:
    """`super().name` in a method of its class."""
    if name == "__init__":
        return Native(lambda *args, **kwargs: filled(it, owner, list(args), kwargs))
    if name == "__setitem__":
        return Native(owner.__setitem__)
    if name == "__getitem__":
        return Native(lambda key: _held(owner, key))
    if name == "__len__":
        return Native(owner.__len__)
    if name == "__contains__":
        return Native(lambda key: unknown(owner, key) if is_unknown(key) else key in owner)
    if name in ("__setattr__", "__delattr__"):
        return Native(lambda key, value=None: owner.attrs.__setitem__(key, value))
    return calls.native_method(it, owner, name)


def as_sets(it: Interpreter, left: Any, right: Any) -> list[Any]:
    """Both sides, where one is the keys or pairs of a dict: as sets, which is what they compare and are computed with as."""
    if not isinstance(left, View) and not isinstance(right, View):
        return [left, right]
    return [it.hashed(set, list(side)) if isinstance(side, View) else side for side in (left, right)]
