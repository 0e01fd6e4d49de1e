"""Which arm of a condition is taken that nothing decides, from the source alone, so that every rank takes the same."""

from __future__ import annotations

import ast


def is_early_exit(node: ast.If) -> bool:
    """Whether an arm leaves the block that the `if` stands in."""
    return _leaves(node.body) or _leaves(node.orelse)


def preferred(test: ast.expr, then: list[ast.stmt], orelse: list[ast.stmt]) -> bool:
    """How an unknown condition is taken: not into an error or out of the run, and an unknown object is there."""
    if _leaves(then) and not _leaves(orelse):
        return False
    if orelse and _leaves(orelse):
        return True
    match test:
        case ast.Compare(ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return not preferred(inner, orelse, then)
    return False


def _leaves(statements: list[ast.stmt]) -> bool:
    return bool(statements) and isinstance(statements[-1], (ast.Raise, ast.Return, ast.Break, ast.Continue))
