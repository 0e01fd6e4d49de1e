"""Functions of the module math: which of them are computed, and what their results are bounded by."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from ddp_audit.folding.sizes import NUMBERS, ORDERED, UNORDERED, check_bits, check_items, count_of

_GROW = frozenset({"prod", "lcm", "sumprod", "fma", "ldexp"})  # whose bits are at most those of all that they are given

FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"math.{name}": function for name, function in vars(math).items() if callable(function) and not name.startswith("_")
}


def check(name: str, *args: Any, **named: Any) -> None:
    """Refuse a call of `math.<name>` that takes much work or gives a large number.

    Raise TooLarge for such, and TypeError for what is neither a number nor a container of numbers.
    """
    given = list(_numbers((*args, *named.values())))
    bits = [value.bit_length() for value in given if isinstance(value, int)]
    check_bits(max(bits, default=0))
    if name in _GROW:
        check_bits(sum(bits))
    elif name == "factorial" and given:
        check_bits(given[0] * max(bits[:1], default=0))
    elif name in ("comb", "perm") and len(bits) == len(given) > 0:
        chosen = max(0, *given[1:]) if len(given) > 1 else given[0]
        check_bits(bits[0] * (min(chosen, max(0, given[0] - chosen)) if name == "comb" else chosen))


def _numbers(values: Any, depth: int = 0) -> Iterator[Any]:
    """The numbers among values and in the containers that are among them."""
    check_items(count_of(values))
    for value in values:
        if isinstance(value, NUMBERS):
            yield value
        elif isinstance(value, (*ORDERED, *UNORDERED, range)) and not depth:
            yield from _numbers(value, depth + 1)
        else:
            raise TypeError("a number that is none")


__all__ = ["FUNCTIONS", "check"]
