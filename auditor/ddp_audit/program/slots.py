"""Variables and attributes at one point of the program, cheap to fork: an arm of a branch writes into a layer of its own.

A slot is a variable, keyed by (frame id, name), or an attribute, keyed by (object key, name). Layers keep the slots of one owner
together, so that those of a call can be forgotten, and those of a module listed, without a look at all the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddp_audit.program.values import Value

Key = tuple[Any, str]


class Slots:
    """A mapping from slot to value with what `base` holds beneath it. Deleted slots are hidden by None."""

    __slots__ = ("_own", "base")

    def __init__(self, base: Slots | None = None) -> None:
        self.base = base
        self._own: dict[Any, dict[str, Value | None]] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a slot, None where it has none."""
        owner, name = key
        layer: Slots | None = self
        while layer is not None:
            names = layer._own.get(owner)
            if names is not None and name in names:
                return names[name]
            layer = layer.base
        return None

    def __getitem__(self, key: Key) -> Value:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Value) -> None:
        self._own.setdefault(key[0], {})[key[1]] = value

    def __delitem__(self, key: Key) -> None:
        names = self._own.setdefault(key[0], {})
        if self.base is None:
            names.pop(key[1], None)
        else:
            names[key[1]] = None

    def fork(self) -> Slots:
        """A layer above this one. This one must not be written to while the fork is in use."""
        return Slots(self)

    def changed(self) -> list[Key]:
        """The slots written in this layer."""
        return [(owner, name) for owner, names in self._own.items() for name in names]

    def commit(self) -> Slots:
        """Writes this layer into its base, which is returned."""
        assert self.base is not None
        for owner, names in self._own.items():
            for name, value in names.items():
                if value is None:
                    del self.base[owner, name]
                else:
                    self.base[owner, name] = value
        return self.base

    def update(self, pairs: Iterable[tuple[Key, Value]]) -> None:
        """Sets many slots."""
        for key, value in pairs:
            self[key] = value

    def of(self, owner: Any) -> dict[str, Value]:
        """Every slot of one owner, by name."""
        layers: list[Slots] = []
        layer: Slots | None = self
        while layer is not None:
            layers.append(layer)
            layer = layer.base
        flat: dict[str, Value | None] = {}
        for layer in reversed(layers):
            flat.update(layer._own.get(owner, {}))
        return {name: value for name, value in flat.items() if value is not None}

    def forget(self, owner: Any) -> None:
        """Drops what this layer holds of an owner that no lower layer knows."""
        self._own.pop(owner, None)
