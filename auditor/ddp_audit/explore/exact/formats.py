"""f-strings of an interpreted run."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ddp_audit.explore.exact import expressions, python_names
from ddp_audit.explore.exact.contents import unknown
from ddp_audit.explore.exact.values import Scope, Unknown

if TYPE_CHECKING:
    from ddp_audit.explore.exact.interpreter import Interpreter

_CONVERSIONS = {97: "__ascii__", 114: "__repr__", 115: "__str__"}  # of a part of an f-string, by the number that its node has


def formatted(it: Interpreter, parts: list[ast.expr], scope: Scope) -> Any:
    """The text of an f-string; unknown where a part of it is."""
    text: Any = ""
    lost: list[Any] = []
    for part in parts:
        if isinstance(part, ast.FormattedValue):
            value = expressions.evaluate(it, part.value, scope)
            spec = "" if part.format_spec is None else expressions.evaluate(it, part.format_spec, scope)
            if part.conversion in _CONVERSIONS:
                value = python_names.text_of(it, value, _CONVERSIONS[part.conversion])
            shown = python_names.text_of(it, value, "__format__", spec) if isinstance(spec, str) else unknown(value)
            text = it.fold("+", text, shown) if isinstance(shown, str) else shown
            if isinstance(text, Unknown):
                lost, text = [*lost, text], ""
        elif isinstance(part, ast.Constant):
            text = it.fold("+", text, str(part.value))
            if isinstance(text, Unknown):
                lost, text = [*lost, text], ""
    return unknown(lost, why="a text") if lost else text
