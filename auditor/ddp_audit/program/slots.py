"""Variables and attributes at one point of the program, cheap to fork: an arm of a branch writes into a layer of its own.

A slot is a variable, keyed by (frame id, name), or an attribute, keyed by (object key, name). Layers keep the slots of one owner
together, so that those of a call can be forgotten, and those of a module listed, without a look at all the others. All layers above
one root share what names each owner was ever given: most questions are for names that it never had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ddp_audit.program.values import Value

Key = tuple[Any, str]


class _Owner:
    """A frame or an object, found by its key once, so that the layers need not hash the key, which is made of places.

    `names` are those that it was given in any layer, `above` says that a layer above the root gave it one.
    """

    __slots__ = ("above", "key", "names")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.names: set[str] = set()
        self.above = False


class Slots:
    """A mapping from slot to value with what `base` holds beneath it. Deleted slots are hidden by None."""

    __slots__ = ("_own", "_owners", "_root", "base")

    def __init__(self, base: Slots | None = None) -> None:
        self.base = base
        self._own: dict[_Owner, dict[str, Value | None]] = {}
        self._owners: dict[Any, _Owner] = {} if base is None else base._owners
        self._root: Slots = self if base is None else base._root

    def get(self, key: Key) -> Value | None:
        """The value of a slot, None where it has none."""
        owner = self._owners.get(key[0])
        return None if owner is None or key[1] not in owner.names else self._find(owner, key[1])

    def _find(self, owner: _Owner, name: str) -> Value | None:
        layer: Slots | None = self if owner.above else self._root
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
        owner = self._owners.get(key[0])
        if owner is None:
            owner = self._owners[key[0]] = _Owner(key[0])
        self._set(owner, key[1], value)

    def _set(self, owner: _Owner, name: str, value: Value | None) -> None:
        names = self._own.get(owner)
        if names is None:
            names = self._own[owner] = {}
            if self.base is not None:
                owner.above = True
        owner.names.add(name)
        names[name] = value

    def __delitem__(self, key: Key) -> None:
        owner = self._owners.get(key[0])
        if owner is not None:
            self._delete(owner, key[1])

    def _delete(self, owner: _Owner, name: str) -> None:
        if self.base is not None:
            self._set(owner, name, None)
        elif owner in self._own:
            self._own[owner].pop(name, None)

    def fork(self) -> Slots:
        """A layer above this one. This one must not be written to while the fork is in use."""
        return Slots(self)

    def changed(self) -> list[Key]:
        """The slots written in this layer."""
        return [(owner.key, name) for owner, names in self._own.items() for name in names]

    def commit(self) -> Slots:
        """Writes this layer into its base, which is returned."""
        base = self.base
        assert base is not None
        for owner, names in self._own.items():
            for name, value in names.items():
                if value is None:
                    base._delete(owner, name)
                else:
                    base._set(owner, name, value)
        return base

    def join(self, other: Slots, joined: Callable[[Value, Value], Value]) -> Slots:
        """Writes two layers above one base into it, and returns it.

        What both hold is `joined`; a slot that one of them does not have, not even in the base, is that of the other.
        """
        base = self.base
        assert base is not None and base is other.base
        for owner in dict.fromkeys((*self._own, *other._own)):
            mine, others = self._own.get(owner, {}), other._own.get(owner, {})
            for name in dict.fromkeys((*mine, *others)):
                one = mine[name] if name in mine else base._find(owner, name)
                two = others[name] if name in others else base._find(owner, name)
                if one is None or two is None:
                    kept = two if one is None else one
                    if kept is not None:
                        base._set(owner, name, kept)
                else:
                    base._set(owner, name, one if one is two else joined(one, two))
        return base

    def update(self, pairs: Iterable[tuple[Key, Value]]) -> None:
        """Sets many slots."""
        for key, value in pairs:
            self[key] = value

    def of(self, owner: Any) -> dict[str, Value]:
        """Every slot of one owner, by name."""
        known = self._owners.get(owner)
        if known is None:
            return {}
        layers: list[Slots] = []
        layer: Slots | None = self
        while layer is not None:
            layers.append(layer)
            layer = layer.base
        flat: dict[str, Value | None] = {}
        for layer in reversed(layers):
            flat.update(layer._own.get(known, {}))
        return {name: value for name, value in flat.items() if value is not None}

    def items(self) -> Iterator[tuple[Key, Value]]:
        """Every slot with its value. The layer must not be written to meanwhile."""
        for owner in self._owners.values():
            for name in owner.names:
                value = self._find(owner, name)
                if value is not None:
                    yield (owner.key, name), value

    def forget(self, owner: Any) -> None:
        """Drops what this layer holds of an owner that no lower layer knows."""
        known = self._owners.get(owner)
        if known is not None:
            self._own.pop(known, None)
