"""Variables and attributes at one point of the program, cheap to fork: an arm of a branch writes into a layer of its own.

A slot is a variable, keyed by (frame id, name), or an attribute, keyed by (object key, name).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ddp_audit.program.values import Value

Key = tuple[Any, str]


class Slots:
    """A mapping from slot to value with what `base` holds beneath it. Deleted slots are hidden by None."""

    __slots__ = ("base", "own")

    def __init__(self, base: Slots | None = None) -> None:
        self.base = base
        self.own: dict[Key, Value | None] = {}

    def get(self, key: Key) -> Value | None:
        """The value of a slot, None where it has none."""
        layer: Slots | None = self
        while layer is not None:
            if key in layer.own:
                return layer.own[key]
            layer = layer.base
        return None

    def __getitem__(self, key: Key) -> Value:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Key, value: Value) -> None:
        self.own[key] = value

    def __delitem__(self, key: Key) -> None:
        if self.base is None:
            self.own.pop(key, None)
        else:
            self.own[key] = None

    def fork(self) -> Slots:
        """A layer above this one. This one must not be written to while the fork is in use."""
        return Slots(self)

    def changed(self) -> Iterator[Key]:
        """The slots written in this layer."""
        return iter(list(self.own))

    def commit(self) -> Slots:
        """Writes this layer into its base, which is returned."""
        assert self.base is not None
        for key, value in self.own.items():
            if value is None:
                del self.base[key]
            else:
                self.base[key] = value
        return self.base

    def update(self, pairs: Iterable[tuple[Key, Value]]) -> None:
        """Sets many slots."""
        for key, value in pairs:
            self.own[key] = value

    def items(self) -> list[tuple[Key, Value]]:
        """Every slot with its value. Reads all layers: not for hot paths."""
        layers: list[Slots] = []
        layer: Slots | None = self
        while layer is not None:
            layers.append(layer)
            layer = layer.base
        flat: dict[Key, Value | None] = {}
        for layer in reversed(layers):
            flat.update(layer.own)
        return [(key, value) for key, value in flat.items() if value is not None]
