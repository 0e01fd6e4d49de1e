"""Operators, builtins and pure methods on concrete values, computed only where the result is small.

`fold` is the entrance, for every interpreter of a user's program. It bounds the size of a result before the operation is done:
a script can ask for ten gigabytes in one short line. Nothing of a program is called, only Python's own operations on Python's
own values.
"""

from __future__ import annotations

from typing import Any

from ddp_audit.folding import mathematics
from ddp_audit.folding.methods import CHANGES, METHODS, check_method
from ddp_audit.folding.operators import CHECKS, FUNCTIONS
from ddp_audit.folding.sizes import MOST_BITS, MOST_ITEMS, MOST_TEXT, Effort, TooLarge, bounded, check_key, count_of, weigh


def fold(name: str, *args: Any, **named: Any) -> Any:
    """Return what an operation gives on concrete values.

    `name` is an operator as it is written (`+`, `==`, `not in`), `neg`, `pos` or `~`, a builtin by its name, a function of math
    as `math.name`, or a method with a dot before it, whose receiver is the first argument; `[]` and `[]=` are subscripts.
    Raise TooLarge where the result, or the work for it, would not be small, TypeError where no such operation is known, and
    otherwise what Python raises.
    """
    if name.startswith("."):
        check_method(name[1:], args[0], args[1:], named)
        if name in METHODS:
            return METHODS[name](*args, **named)
        return bounded(getattr(args[0], name[1:])(*args[1:], **named))
    if name.startswith("math."):
        if name not in mathematics.FUNCTIONS:
            raise TypeError(f"{name} is not computed")
        mathematics.check(name.removeprefix("math."), *args, **named)
        return bounded(mathematics.FUNCTIONS[name](*args, **named))
    function = FUNCTIONS.get(name)
    if function is None:
        raise TypeError(f"{name} is not computed")
    check = CHECKS.get(name)
    if check is not None:
        check(*args, **named)
    return bounded(function(*args, **named))


__all__ = [
    "CHANGES",
    "MOST_BITS",
    "MOST_ITEMS",
    "MOST_TEXT",
    "Effort",
    "TooLarge",
    "bounded",
    "check_key",
    "count_of",
    "fold",
    "weigh",
]
