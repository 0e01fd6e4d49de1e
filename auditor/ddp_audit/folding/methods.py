"""Methods of Python's own values: what their results are bounded by."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddp_audit.folding.operators import (
    check_contained,
    check_elements,
    check_encoding,
    check_formatted,
    check_numbers,
    check_repr,
    check_texts,
)
from ddp_audit.folding.sizes import CONTAINERS, NUMBERS, TEXTS, bounded, check_bits, check_items, check_text, count_of, weigh

# The operations that change their first argument, so that a refusal leaves it other than the program has it.
CHANGES = frozenset({".append", ".extend", ".insert", ".update", ".setdefault", ".add", ".sort", ".remove", ".seed", "[]="})


class _Formatter(string.Formatter):
    """str.format with a bound on what it writes, and without a look into the attributes and elements of what it is given."""

    def __init__(self) -> None:
        self.written = 0

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if "." in field_name or "[" in field_name:
            raise TypeError("an attribute or element in a format")
        value = self.get_value(int(field_name) if field_name.isdecimal() else field_name, args, kwargs)
        return value, field_name

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        if conversion is not None:
            check_repr(value)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        check_formatted(value, format_spec)
        text = format(value, format_spec)
        self.written += len(text)
        check_text(self.written)
        return text


def _format(text: str, *args: Any, **named: Any) -> str:
    check_text(len(text))
    made = _Formatter().vformat(text, args, named)
    return str(bounded(made))


def _format_map(text: str, mapping: Any) -> str:
    if not isinstance(mapping, dict):
        raise TypeError("a mapping of another kind")
    return _format(text, **mapping)


METHODS: dict[str, Callable[..., Any]] = {".format": _format, ".format_map": _format_map}


def check_method(name: str, owner: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Bound what a method gives, and what a method that changes its receiver makes of it."""
    given = (*args, *named.values())
    if name.startswith("_"):
        raise TypeError(f"{name} is not computed")
    if isinstance(owner, TEXTS):
        check_text(len(owner))
        _check_text_method(name, owner, given)
    elif isinstance(owner, (*CONTAINERS, range)):
        _check_container_method(name, owner, args, named)
    elif isinstance(owner, NUMBERS):
        check_numbers(owner)
        if name == "to_bytes" and given:
            check_text(given[0])
        if name == "from_bytes":
            raise TypeError(f"{name} is not computed")
    elif (type(owner).__module__, type(owner).__name__) == ("random", "Random"):
        _check_drawn(name, given)
    else:
        raise TypeError(f"{name} is not computed")


def _check_text_method(name: str, owner: Any, given: tuple[Any, ...]) -> None:
    if name in ("format", "format_map"):
        return
    check_texts(*given)
    size = len(owner)
    numbers = [abs(value) for value in given if isinstance(value, int)]
    if name in ("ljust", "rjust", "center", "zfill"):
        check_text(max([size, *numbers]))
    elif name == "expandtabs":
        check_text(size + owner.count("\t" if isinstance(owner, str) else b"\t") * max([8, *numbers]))
    elif name == "join" and given:
        parts = given[0]
        check_items(count_of(parts))
        if not isinstance(parts, (*TEXTS, *CONTAINERS)):
            raise TypeError("a text joined of other things than texts")
        check_text(sum(len(part) for part in parts if isinstance(part, TEXTS)) + size * len(parts))
    elif name == "replace" and len(given) > 1 and all(isinstance(part, TEXTS) for part in given[:2]):
        old, new = given[:2]
        check_text(size + owner.count(old) * max(0, len(new) - len(old)))
    elif name == "translate" and given:
        table = given[0]
        widest = max((len(v) for v in table.values() if isinstance(v, str)), default=1) if isinstance(table, dict) else 1
        check_text(size * max(1, widest))
    elif name in ("encode", "decode"):
        check_text(4 * size)
        check_encoding(*given)
    elif name == "hex":
        check_text(3 * size + size * max((len(part) for part in given if isinstance(part, TEXTS)), default=0))
    elif name == "fromhex" or name == "maketrans":
        check_elements(*(part for part in given if isinstance(part, dict)))
    elif name == "extend":
        check_text(size + sum(map(count_of, given)))
    elif name in ("split", "rsplit", "splitlines"):
        check_items(size)
    elif name in ("upper", "lower", "title", "casefold", "swapcase", "capitalize"):
        check_text(3 * size)


def _check_container_method(name: str, owner: Any, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    if name in ("index", "count", "remove") and given:
        check_contained(given[0], owner)
    elif name in ("append", "appendleft", "add", "insert", "setdefault", "copy"):
        check_items(len(owner) + 1)
        if name in ("add", "setdefault"):
            weigh(given[0])
    elif name in ("extend", "extendleft", "update", "union", "intersection", "difference", "symmetric_difference"):
        check_items(len(owner) + sum(map(count_of, given)) + len(named))
        if isinstance(owner, (set, frozenset)):
            for part in given:
                check_elements(part)
    elif name == "fromkeys":
        check_items(sum(map(count_of, given[:1])))
    elif name in ("sort", "issubset", "issuperset", "isdisjoint", "difference_update", "intersection_update"):
        weigh(owner)
        check_elements(*given)
    elif name in ("get", "pop", "discard", "symmetric_difference_update") and given:
        check_elements(*given[:1])


def _check_drawn(name: str, given: tuple[Any, ...]) -> None:
    """A method of random.Random."""
    numbers = [value for value in given if isinstance(value, int)]
    check_numbers(*numbers)
    if name in ("getrandbits", "randbytes", "binomialvariate"):
        check_bits(sum(numbers))
    elif name in ("sample", "choices"):
        check_items(sum(numbers) + sum(count_of(value) for value in given if isinstance(value, CONTAINERS)))
    elif name == "seed":
        check_texts(*given)
