"""Rank functions that a condition tests, or compares, as objects instead of calling them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddp_audit.knowledge.words import says
from ddp_audit.program.nodes import GuardFunction
from ddp_audit.program.values import Ext, Func, Value, options

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_PREDICATES, _NUMBERS = "named-main-process", "gives-rank"  # meanings of names
_EQUAL, _OTHER = (ast.Eq, ast.In, ast.Is), (ast.NotEq, ast.NotIn, ast.IsNot)  # `<` and its like raise


def check(lw: Lowering, test: ast.expr, body: Sequence[ast.stmt], arm: bool = True) -> None:
    """Notes each rank function in a condition that is not called. `arm` is what the condition has to be for `body` to run."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            check(lw, operand, body, not arm)
        case ast.BoolOp(values=values):
            for value in values:
                check(lw, value, body, arm)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if isinstance(op, _EQUAL + _OTHER):
            for side in (left, right):
                _note(lw, side, _NUMBERS, isinstance(op, _OTHER) == arm, body)
        case _:
            _note(lw, test, _PREDICATES, arm, body)


def _note(lw: Lowering, node: ast.expr, meaning: str, enters: bool, body: Sequence[ast.stmt]) -> None:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    if not isinstance(node, (ast.Name, ast.Attribute)) or not says(name, meaning):
        return
    value = lw.eval(node)
    if _is_function(value):
        places = (lw.span(body[0]), lw.span(body[-1])) if body else ()
        lw.emit(node, GuardFunction(target=value, name=name, enters=enters, body=places))


def is_rank_function(value: Value) -> bool:
    """Whether a value is a function that gives a rank, and not what it gives."""
    name = value.name.rsplit(".", 1)[-1] if isinstance(value, Ext) else getattr(getattr(value, "definition", None), "name", "")
    return isinstance(value, (Ext, Func)) and says(name, _NUMBERS)


def _is_function(value: Value) -> bool:
    """Whether a value is nothing but functions: of the project, or a thing of a library that may be one."""
    return all(isinstance(option, (Func, Ext)) for option in options(value))
