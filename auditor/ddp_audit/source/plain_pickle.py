"""Plain values out of a pickle: numbers, texts, lists and dicts of them. Nothing of a pickle is called or imported.

A pickle can name any function and have it called. Here each name is refused, and the unpickler is the one in Python, whose memo is
a dict: that of C makes room for whatever number a pickle writes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NoReturn

MOST_BYTES = 1_000_000
_MOST_VALUES = 200_000
_DEEPEST = 8
_PLAIN = (int, float, str, bytes, bool, type(None))


class NotPlain(ValueError):
    """A pickle that is damaged, too large, or holds more than plain values. The text says which."""


class _Plain(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise NotPlain(f"it refers to {module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NotPlain("it refers to an object outside of it")


def load_plain(data: bytes) -> Any:
    """Return what a pickle holds. Raises NotPlain."""
    if len(data) > MOST_BYTES:
        raise NotPlain("it is too large")
    try:
        return _copied(_Plain(io.BytesIO(data)).load(), [0], 0)
    except NotPlain:
        raise
    except Exception as error:  # a damaged pickle raises whatever its bytes lead to
        raise NotPlain(f"it is damaged ({type(error).__name__})") from None


def _copied(value: Any, count: list[int], depth: int) -> Any:
    """A copy, which shares nothing with itself. Raises NotPlain for what is none of the plain types, deep, or has many values."""
    count[0] += 1
    if count[0] > _MOST_VALUES or depth > _DEEPEST:
        raise NotPlain("it holds too many values")
    if type(value) in _PLAIN:
        return value
    if type(value) in (list, tuple):
        return type(value)(_copied(one, count, depth + 1) for one in value)
    if type(value) is dict:
        return {_copied(key, count, depth + 1): _copied(one, count, depth + 1) for key, one in value.items()}
    raise NotPlain(f"it holds a {type(value).__name__}")
