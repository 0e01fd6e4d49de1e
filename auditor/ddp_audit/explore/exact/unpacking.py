"""What the names on the left of an assignment are given of the value on its right."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import tensors, totals
from ddp_audit.explore.exact.contents import unknown
from ddp_audit.explore.exact.values import Lib, Tensor, Unknown, error

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter


def parts(it: Interpreter, names: list[ast.expr], value: Any) -> list[Any]:
    """One value for each of the names, of which one may have a star. Raises what Python raises where the number is another."""
    if isinstance(value, (Unknown, Lib)):
        return [totals.copied(value, unknown(value)) for _ in names]
    if isinstance(value, Tensor) and (value.shape is None or not value.shape or value.shape[0] != len(names)):
        return [totals.copied(value, tensors.like(it, value, shape=None)) for _ in names]
    found = it.listed(value)
    if isinstance(found, Unknown):
        return [found for _ in names]
    star = next((i for i, name in enumerate(names) if isinstance(name, ast.Starred)), None)
    if not it.shortened and isinstance(value, (list, tuple, dict, str, set, frozenset, range)):
        _fits(len(found), len(names) - (star is not None), star is not None)
    if star is not None:
        end = len(found) - (len(names) - star - 1)
        return [*found[:star], found[star:end], *found[end:]]
    return [*found, *(Unknown() for _ in names)][: len(names)]


def _fits(given: int, wanted: int, more: bool) -> None:
    if given < wanted:
        raise error("ValueError", f"not enough values to unpack (expected {'at least ' * more}{wanted}, got {given})")
    if given > wanted and not more:
        raise error("ValueError", f"too many values to unpack (expected {wanted})")
