"""How large a value is, or its text, and the bounds on that. A bound is tested before anything is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MOST_BITS = 8_192  # of a whole number; its digits stay below the limit that Python has for texts of numbers
MOST_TEXT = 65_536  # characters of a text, or bytes
MOST_ITEMS = 200_000  # of a list, tuple, set or dict, with what is nested in it counted as often as it is seen
MOST_DIGITS = 2_466  # of a decimal number of MOST_BITS
_MOST_IN_A_KEY = 10_000  # parts; a hash goes down into each by a call of its own
NUMBERS = (int, float, complex)  # bool is an int
TEXTS = (str, bytes, bytearray)
ORDERED = (list, tuple)
UNORDERED = (dict, set, frozenset)
CONTAINERS = (*ORDERED, *UNORDERED)


class Effort:
    """How many parts of values were looked at, by all operations so far. What it grows by in a run bounds the run."""

    parts = 0


class TooLarge(Exception):
    """A result that would not be small. The text says of what kind, for a reader."""


def bounded(value: Any) -> Any:
    """Return a value that is small. Raise TooLarge for one that is not."""
    if isinstance(value, int):
        check_bits(value.bit_length())
    elif isinstance(value, TEXTS):
        check_text(len(value))
    elif isinstance(value, CONTAINERS):
        check_items(len(value))
    return value


def weigh(*values: Any, most: int = MOST_ITEMS) -> int:
    """Return how many values are in values and in the containers in them, each as often as a walk meets it.

    Raise TooLarge as soon as there are more than `most`: a list of lists that is built of itself has more than any walk ends in.
    """
    count = 0
    stack: list[Iterable[Any]] = [values]
    while stack:
        inner = stack.pop()
        size = len(inner)  # type: ignore[arg-type]
        count += size
        Effort.parts += size
        if count > most:
            raise TooLarge(f"a value of more than {most:,} parts")
        stack += [one for one in inner if isinstance(one, CONTAINERS)]
        if isinstance(inner, dict):
            stack += [one for one in inner.values() if isinstance(one, CONTAINERS)]
    return count


def check_key(key: Any) -> Any:
    """Return a key of a dict or set. Raise TooLarge where its hash, which a tuple does not keep, would take much work."""
    if isinstance(key, (tuple, frozenset)):
        weigh(key, most=_MOST_IN_A_KEY)
    return key


def check_bits(count: float) -> None:
    if count > MOST_BITS:
        raise TooLarge(f"a number of more than {MOST_BITS:,} bits")


def check_text(length: float) -> None:
    if length > MOST_TEXT:
        raise TooLarge(f"a text of more than {MOST_TEXT:,} characters")


def check_items(count: float) -> None:
    if count > MOST_ITEMS:
        raise TooLarge(f"a container of more than {MOST_ITEMS:,} elements")


def count_of(value: Any) -> int:
    """The number of elements that iterating over a value gives. Raise TypeError where that is not known."""
    if isinstance(value, range):
        return max(0, -(-(value.stop - value.start) // value.step))  # len() fails beyond what fits a machine word
    if isinstance(value, (*TEXTS, *CONTAINERS)) or hasattr(value, "__len__"):
        return len(value)
    raise TypeError(f"{type(value).__name__} has no known number of elements")


def shown(value: Any) -> int:
    """A bound on the length of the text of a value, by str(), repr() or format() with no width."""
    if isinstance(value, bool) or value is None:
        return 5
    if isinstance(value, int):
        check_bits(value.bit_length())
        return value.bit_length() + 3  # in binary
    if isinstance(value, (float, complex)):
        return 700
    if isinstance(value, TEXTS):
        return 10 * len(value) + 3 if len(value) <= MOST_TEXT // 16 else len(value) + 3 + 9 * _escaped(value)
    if isinstance(value, (range, slice)):
        return sum(shown(part) for part in (value.start, value.stop, value.step)) + 20
    if isinstance(value, CONTAINERS):
        weigh(value)
        pairs: Iterable[Any] = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        total = 12
        for part in pairs:
            total += shown(part) + 4
            check_text(total)
        return total
    raise TypeError(f"the text of a {type(value).__name__} is not known")


def _escaped(value: str | bytes | bytearray) -> int:
    """How many characters of a text its repr() may write as an escape."""
    if isinstance(value, str):
        return 0 if value.isascii() and value.isprintable() else len(value)
    return len(value)
