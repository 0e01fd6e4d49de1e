"""Named tuples of an interpreted run: tuples whose elements have names."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import calls, definitions
from ddp_audit.explore.exact.contents import unknown
from ddp_audit.explore.exact.values import MISSING, SPREAD, Class, Native, Unknown

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

Args = list[Any]
Kwargs = dict[str, Any]


class Record(tuple[Any, ...]):
    """A named tuple: a tuple whose elements have names. `cls` is its class where the project defines one."""

    names: tuple[str, ...] = ()
    cls: Class | None = None

    @classmethod
    def of(cls, values: Sequence[Any], names: Sequence[str], kind: Class | None = None) -> Record:
        """The named tuple with these values."""
        made = cls(values)
        made.names, made.cls = tuple(names), kind
        return made

    def attribute(self, it: Interpreter, name: str) -> Any:
        """A field, a method of its class, or one that every named tuple has."""
        if name in self.names:
            return self[self.names.index(name)]
        if name == "_fields":
            return self.names
        if name == "_asdict":
            return Native(lambda: dict(zip(self.names, self, strict=True)))
        if name == "_replace":
            return Native(self._replaced)
        if name in ("index", "count"):
            return Native(functools.partial(getattr(tuple, name), self))
        found = MISSING if self.cls is None else self.cls.find(name)
        return Unknown(name) if found is MISSING else calls.bound(it, found, self)

    def _replaced(self, **given: Any) -> Record:
        return Record.of([given.get(n, v) for n, v in zip(self.names, self, strict=True)], self.names, self.cls)


def is_record(cls: Class) -> bool:
    """Whether objects of a class are named tuples."""
    return any(name in ("typing.NamedTuple", "typing_extensions.NamedTuple") for name in cls.outside_bases())


def make(it: Interpreter, cls: Class, args: Args, kwargs: Kwargs) -> Any:
    """An object of a class that descends from NamedTuple."""
    fields = [field for each in reversed(cls.lineage()) for field in each.annotated]
    return filled(
        it,
        [name for name, _ in fields],
        args,
        kwargs,
        {n: definitions.default_of(it, cls, d) for n, d in fields if d is not None},
        cls,
    )


def filled(it: Interpreter, names: Sequence[str], args: Args, kwargs: Kwargs, defaults: Kwargs, cls: Class | None) -> Record:
    """The named tuple that a call with these arguments makes."""
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    lost = kwargs.get(SPREAD)
    values = [given[n] if n in given else defaults[n] if n in defaults and lost is None else unknown(lost, why=n) for n in names]
    it.makes(len(values))
    return Record.of(values, names, cls)
