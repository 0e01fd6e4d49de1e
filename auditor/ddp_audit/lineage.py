"""The order in which a class and the classes that it descends from are asked for an attribute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

_Class = TypeVar("_Class")
_MOST_ORDERED = 300  # classes of which Python is asked for the order: it keeps one for each of them


def lineage(start: _Class, bases: Callable[[_Class], Iterable[_Class]]) -> list[_Class]:
    """Return a class and all its bases, each once, in Python's order.

    Where Python has none, or would take long, each class comes before its own bases, the left ones first. Each class is looked
    at once, however often classes share their bases.
    """
    own: dict[int, list[_Class]] = {}
    found: list[_Class] = []  # each class after its bases, the right ones first

    def unvisited(one: _Class) -> list[_Class]:
        own[id(one)] = list(bases(one))
        return own[id(one)]

    waiting = [(start, unvisited(start)[::-1])]
    while waiting:
        one, left = waiting[-1]
        while left and id(left[0]) in own:
            left.pop(0)
        if left:
            waiting.append((left[0], unvisited(left[0])[::-1]))
        else:
            found.append(one)
            waiting.pop()
    if len(found) < 3 or len(found) > _MOST_ORDERED:
        return found[::-1]
    return _order_of_python(found, own) or found[::-1]


def _order_of_python(found: Sequence[_Class], bases: dict[int, list[_Class]]) -> list[_Class]:
    """The order of the last of some classes, asked of empty classes that descend from each other in the same way."""
    alike: dict[int, type] = {}
    original: dict[type, _Class] = {}
    try:
        for one in found:
            alike[id(one)] = made = type("_", tuple(alike[id(base)] for base in bases[id(one)]), {})
            original[made] = one
    except (TypeError, KeyError):  # no order; a class that descends from itself
        return []
    return [original[made] for made in alike[id(found[-1])].__mro__ if made in original]
