"""Operators and builtins: what computes each, and what its result is bounded by."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from ddp_audit.folding.sizes import (
    CONTAINERS,
    MOST_BITS,
    MOST_DIGITS,
    MOST_TEXT,
    NUMBERS,
    ORDERED,
    TEXTS,
    UNORDERED,
    TooLarge,
    check_bits,
    check_items,
    check_key,
    check_text,
    count_of,
    shown,
    weigh,
)

_MOST_POWER_WORK = 1 << 24  # bits of the exponent times the bits of the modulus squared over those of a machine word squared

_ENCODINGS = frozenset({"utf8", "ascii", "latin1", "utf16", "utf32", "utf8sig", "iso88591", "usascii"})


def _check_add(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        check_bits(max(left.bit_length(), right.bit_length()) + 1)
    elif isinstance(left, TEXTS) and isinstance(right, TEXTS):
        check_text(len(left) + len(right))
    elif isinstance(left, ORDERED) and isinstance(right, ORDERED):
        check_items(len(left) + len(right))


def _check_multiply(left: Any, right: Any) -> None:
    for one, other in ((left, right), (right, left)):
        if isinstance(other, int):
            if isinstance(one, TEXTS):
                check_text(len(one) * other)
            elif isinstance(one, ORDERED):
                check_items(len(one) * other)
    if isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() + right.bit_length())


def check_numbers(*values: Any) -> None:
    """Division takes the square of the length of its numbers."""
    for value in values:
        if isinstance(value, int):
            check_bits(value.bit_length())


def _check_remainder(left: Any, right: Any) -> None:
    if isinstance(left, TEXTS):
        _check_percent(left if isinstance(left, str) else left.decode("latin-1"), right)
    else:
        check_numbers(left, right)


def _check_percent(text: str, values: Any) -> None:
    """`text % values`: the widths and precisions of the text, those of the values where a `*` asks for one, and the values."""
    given = list(values) if isinstance(values, tuple) else [*values.values()] if isinstance(values, dict) else [values]
    if not all(value is None or isinstance(value, (*NUMBERS, *TEXTS, *CONTAINERS, range)) for value in given):
        raise TypeError("an object as text")
    if isinstance(values, dict):
        given.append(values)
    weigh(values)
    longest = max(map(shown, given), default=0)
    stars = sum(abs(value) for value in given if isinstance(value, int))
    total = len(text)
    check_text(total)
    for asked in _conversions(text):
        total += sum(_numbers_in(asked)) + longest + (stars if "*" in asked else 0)
        check_text(total)


def _conversions(text: str) -> Iterator[str]:
    """The flags, width and precision of each conversion in a text for `%`, found as Python finds them."""
    at = text.find("%") + 1
    while at > 0:
        if text[at : at + 1] == "(":
            depth, at = 1, at + 1
            while depth and at < len(text):
                depth += {"(": 1, ")": -1}.get(text[at], 0)
                at += 1
        start = at
        while at < len(text) and text[at] in "#- +.*0123456789hlL":
            at += 1
        yield text[start:at]
        at = text.find("%", at + 1) + 1  # after the letter of the conversion, which may be a percent sign


def _numbers_in(text: str) -> list[int]:
    """The whole numbers written in a text, those too long to be a width as one too large."""
    found, digits = [], ""
    for character in text + " ":
        if character.isdecimal():
            digits += character
        elif digits:
            found.append(int(digits) if len(digits) < 12 else MOST_TEXT + 1)
            digits = ""
    return found


def _check_power(base: Any, exponent: Any, modulus: Any = None) -> None:
    check_numbers(base, exponent, modulus)
    if not isinstance(base, int) or not isinstance(exponent, int):
        return
    if modulus is None:
        if abs(base) > 1:
            check_bits(base.bit_length() * max(exponent, 1))
    elif isinstance(modulus, int):
        words = 1 + modulus.bit_length() // 30
        if (1 + abs(exponent).bit_length()) * words * words > _MOST_POWER_WORK:
            raise TooLarge("a power of large numbers")


def _check_shift(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left:
        check_bits(left.bit_length() + max(right, 0))


def _check_union(left: Any, right: Any) -> None:
    check_numbers(left, right)
    if isinstance(left, UNORDERED) and isinstance(right, UNORDERED):
        check_items(len(left) + len(right))


def _check_compared(left: Any, right: Any) -> None:
    if isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS):
        weigh(left, right)


def check_contained(item: Any, container: Any) -> None:
    if isinstance(container, range):
        if type(item) is not int and type(item) is not bool:  # then each element is compared with it
            check_items(count_of(container))
    else:
        weigh(container, item)


def _check_written(owner: Any, index: Any, value: Any) -> None:
    """`owner[index] = value`."""
    if isinstance(index, slice):
        check_items(len(owner) + count_of(value))
    elif isinstance(owner, dict):
        check_items(len(owner) + 1)
        check_key(index)


def _check_read(owner: Any, index: Any) -> None:
    """`owner[index]`."""
    if isinstance(owner, dict):
        check_key(index)


def _contained(item: Any, container: Any) -> bool:
    # Python walks what has no __contains__, by the numbers 0, 1, 2 .. where need be: a value that answers to any index has no end.
    if not hasattr(type(container), "__contains__"):
        raise TypeError("a container that cannot be asked")
    return item in container


def check_encoding(encoding: Any = "utf-8", errors: Any = "strict") -> None:
    """Refuse the codecs that are more than a table of characters: some take the square of the length of a text."""
    if not isinstance(encoding, str) or encoding.lower().replace("-", "").replace("_", "") not in _ENCODINGS:
        raise TypeError("an encoding that is not followed")


def _check_to_int(value: Any = 0, base: Any = 10) -> None:
    if isinstance(value, TEXTS):
        check_numbers(base)
        per_digit = 4 if base in (0, 10) else max(1, (base - 1).bit_length())
        if len(value) > (MOST_DIGITS if base == 10 else MOST_BITS // per_digit):
            raise TooLarge(f"a number of more than {MOST_BITS:,} bits")
    else:
        check_numbers(value)


def check_texts(*values: Any, **named: Any) -> None:
    for value in (*values, *named.values()):
        if isinstance(value, TEXTS):
            check_text(len(value))
        elif isinstance(value, int):
            check_bits(value.bit_length())


def _check_shown(value: Any = "", *rest: Any, **named: Any) -> None:
    if rest or named:
        check_encoding(*rest, **named)
    check_text(len(value) if isinstance(value, str) else shown(value))


def check_repr(value: Any) -> None:
    check_text(shown(value))


def _check_round(value: Any, ndigits: Any = None) -> None:
    check_numbers(value)
    if isinstance(ndigits, int) and abs(ndigits) > MOST_DIGITS:
        raise TooLarge("a number of too many digits")


def _check_bytes(value: Any = b"", *rest: Any, **named: Any) -> None:
    if isinstance(value, int):
        check_text(value)
    elif isinstance(value, str):
        check_text(4 * len(value))
        check_encoding(*rest, **named)
    else:
        check_text(count_of(value))


def check_formatted(value: Any, spec: str = "") -> None:
    check_text(len(spec))
    check_text((len(value) + 3 if isinstance(value, str) else 2 * shown(value)) + sum(_numbers_in(spec)))


def check_elements(*values: Any, **named: Any) -> None:
    for value in values:
        if isinstance(value, range):
            check_items(count_of(value))
        elif isinstance(value, CONTAINERS):
            weigh(value)
        else:
            check_texts(value)


def _check_sum(values: Any, start: Any = 0) -> None:
    check_elements(values, start)
    if not all(isinstance(value, NUMBERS) for value in (*values, start)):
        raise TypeError("a sum of other things than numbers")


def _check_length(value: Any) -> None:
    if isinstance(value, range):
        check_bits(count_of(value).bit_length())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": _contained, "not in": lambda item, container: not _contained(item, container),
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "neg": operator.neg, "pos": operator.pos, "~": operator.invert,
    "not": operator.not_, "int": int, "float": float, "complex": complex, "bool": bool, "str": str, "repr": repr, "len": len,
    "abs": abs, "ceil": math.ceil, "floor": math.floor, "round": round, "divmod": divmod, "pow": pow, "ord": ord, "chr": chr,
    "hex": hex, "oct": oct, "bin": bin, "bytes": bytes, "bytearray": bytearray, "min": min, "max": max, "sum": sum,
    "format": format, "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "sorted": sorted,
    "ascii": ascii, "[]": operator.getitem, "[]=": operator.setitem,
}  # fmt: skip
CHECKS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), _check_compared), "in": check_contained, "not in": check_contained,
    "+": _check_add, "-": _check_union, "*": _check_multiply, "/": check_numbers, "//": check_numbers, "%": _check_remainder,
    "**": _check_power, "pow": _check_power, "&": _check_union, "|": _check_union, "^": _check_union, "<<": _check_shift,
    ">>": check_numbers, "neg": check_numbers, "pos": check_numbers, "~": check_numbers, "divmod": check_numbers,
    "int": _check_to_int, "float": check_texts, "complex": check_texts, "str": _check_shown, "repr": check_repr,
    "ascii": check_repr, "len": _check_length, "abs": check_numbers, "round": _check_round, "hex": check_numbers,
    "oct": check_numbers, "bin": check_numbers, "bytes": _check_bytes, "bytearray": _check_bytes, "min": check_elements,
    "max": check_elements, "sum": _check_sum, "format": check_formatted,
    **dict.fromkeys(("list", "tuple", "set", "frozenset", "sorted"), check_elements), "[]": _check_read, "[]=": _check_written,
}  # fmt: skip
