"""Values that can be read without running anything: `--set` values and the assignments of a script's own config file."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LARGEST_POWER = 1024


class NotConstant(ValueError):
    """The expression's value cannot be told without running it."""


def evaluate(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of literals, of names already known, and of arithmetic on numbers. Raises NotConstant."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = evaluate(operand, names)
            if isinstance(value, (int, float)):
                return -value
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not evaluate(operand, names)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            base, power = evaluate(left, names), evaluate(right, names)
            if _is_number(base) and _is_number(power) and abs(power) <= _LARGEST_POWER and abs(base) <= 1 << 64:
                return _apply(operator.pow, base, power)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b = evaluate(left, names), evaluate(right, names)
            if _is_number(a) and _is_number(b):
                return _apply(_OPERATIONS[type(op)], a, b)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            values = [evaluate(item, names) for item in items]
            return values if isinstance(node, ast.List) else tuple(values)
    raise NotConstant(ast.unparse(node))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _apply(operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    try:
        return operation(a, b)
    except (ArithmeticError, ValueError) as error:
        raise NotConstant(str(error)) from None


def assignments(tree: ast.Module) -> dict[str, Any]:
    """The names that a file's top level assigns constants to. A name assigned something else last is left out."""
    names: dict[str, Any] = {}
    for statement in tree.body:
        value: ast.expr | None = None
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            value, targets = statement.value, statement.targets
        elif isinstance(statement, ast.AnnAssign):
            value, targets = statement.value, [statement.target]
        if value is None:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                try:
                    names[target.id] = evaluate(value, names)
                except NotConstant:
                    names.pop(target.id, None)
    return names


def parse_setting(text: str) -> tuple[str, Any]:
    """`NAME=VALUE` as a name and a Python literal, or a string where the value is none. Raises ValueError.

    A leading `--` and dashes inside the name are accepted, as in the script's own arguments.
    """
    name, separator, value = text.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    if not separator or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"'{text}' is not of the form NAME=VALUE")
    try:
        return name, ast.literal_eval(value.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, value
