"""Questions about values of an interpreted run: what is in them, whether it is known, and whether it may differ between ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from ddp_audit.explore.exact.values import PLAIN, Error, Instance, Lib, Tensor, Unknown
from ddp_audit.folding import MOST_ITEMS, Effort
from ddp_audit.knowledge.libraries import may_send
from ddp_audit.knowledge.tensors import OF_PYTHON, TYPES

_HARMLESS = frozenset({"a text", "a number", "a length", "a size", "a range", "a path", "a sum"})  # whatever they were made of
_DEEPEST = 6  # containers within each other that are looked into
_MOST_LOOKED_AT = 16  # elements of a list among which the first unknown is looked for
_HOLDERS = (list, tuple, dict, set, frozenset)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in a value and in its lists, tuples, dicts and dataclass objects. Each of these is looked into once."""
    if isinstance(value, Tensor):
        yield value
        return
    seen: set[int] = set()
    queue: list[tuple[Any, int]] = [(value, 0)]
    while queue:
        inner, depth = queue.pop()
        if isinstance(inner, Tensor):
            yield inner
            continue
        parts: list[Any] = []
        if isinstance(inner, Instance):
            parts = list(inner.attrs.values())
        elif isinstance(inner, dict):
            parts = list(inner.values())
        elif isinstance(inner, (list, tuple, set)):
            parts = list(inner)
        if parts and depth < _DEEPEST and id(inner) not in seen:
            seen.add(id(inner))
            queue += [(part, depth + 1) for part in reversed(parts) if not isinstance(part, PLAIN)]


def is_unknown(value: Any) -> bool:
    """Whether a value or something in it is not known as a plain value, or holds too much to be looked through."""
    if isinstance(value, PLAIN):
        return False
    if isinstance(value, (Unknown, Tensor)):
        return True
    count, queue = 0, [(value, 0)]
    while queue:
        inner, depth = queue.pop()
        parts: Collection[Any] = ()
        if isinstance(inner, dict):
            parts = (*inner.keys(), *inner.values())
        elif isinstance(inner, _HOLDERS):
            parts = inner
        elif isinstance(inner, slice):
            parts = (inner.start, inner.stop, inner.step)
        Effort.parts += len(parts)
        for part in parts:
            count += 1
            if isinstance(part, PLAIN):
                continue
            if isinstance(part, (Unknown, Tensor)) or count > MOST_ITEMS:
                return True
            if depth < 3 and isinstance(part, (*_HOLDERS, slice)):
                queue.append((part, depth + 1))
    return False


def is_local(*values: Any, depth: int = 0) -> bool:
    """Whether one of the values may differ between ranks."""
    for value in values:
        if isinstance(value, (Unknown, Tensor)):
            if value.local:
                return True
        elif isinstance(value, (list, tuple)) and depth < 4 and is_local(*value[:16], depth=depth + 1):
            return True
    return False


def dtype_of(value: Any) -> str | None:
    """The dtype that an argument names, None where it names none."""
    name = value.name if isinstance(value, Lib) else ""
    return TYPES.get(name.rsplit(".", 1)[-1]) if name.startswith("torch.") else OF_PYTHON.get(name)


def unknown(*values: Any, why: str = "") -> Unknown:
    """An unknown that was computed from values."""
    quiet = why in _HARMLESS or all(map(is_quiet, values))
    return Unknown(why, is_local(*values), quiet=quiet, source=first_unknown(*values))


def first_unknown(*values: Any) -> Unknown | None:
    """What the first unknown among values, and the first elements of lists and tuples, comes from."""
    for value in values:
        for element in (value,) if not isinstance(value, (list, tuple)) else value[:_MOST_LOOKED_AT]:
            if isinstance(element, Unknown):
                return element.source or element
    return None


def is_quiet(value: Any, depth: int = 0) -> bool:
    """Whether nothing in a value can send anything when it is called, as far as its first elements show."""
    if isinstance(value, Unknown):
        return value.quiet
    if isinstance(value, (*PLAIN, Tensor, range, slice, Error)):
        return True
    if isinstance(value, Lib):
        return not may_send(value.name) and not value.name.startswith("torch.distributed.")
    if isinstance(value, (list, tuple, set, frozenset, dict)):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        return depth < 4 and all(is_quiet(item, depth + 1) for item in items[:64])
    return False
