"""Whether two lines of one function exclude each other: the arms of one `if` or conditional expression, or of two
that test opposite things.

Ranks that reach one collective from two such lines do so on purpose (`if rank == 0: save(); barrier()` and `else:
barrier()`), so a comparison that only sees call sites would warn without cause. The source answers it: each line has the
conditions under which it is reached, and two lines exclude each other where one condition must hold for the one and fail for
the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

Condition = tuple[str, int]  # a test in a normal form, and the arm taken: 1 where it holds, 0 where not, or the number of a case

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.NotIn: ast.In,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,
}


def exclusive(path: str | Path, a: int, b: int) -> bool | None:
    """Whether lines `a` and `b` (from 1) of a file exclude each other; None where the file cannot be read or parsed."""
    try:
        stamp = Path(path).stat().st_mtime_ns
    except (OSError, ValueError):
        return None
    tree = _parse(str(path), stamp)
    if tree is None:
        return None
    return exclusive_in(tree, a, b)


def exclusive_in(tree: ast.Module, a: int, b: int) -> bool:
    """Whether lines `a` and `b` of a parsed module exclude each other.

    >>> tree = ast.parse("if rank == 0:\\n    f()\\nelse:\\n    g()\\nh()")
    >>> exclusive_in(tree, 2, 4), exclusive_in(tree, 2, 5)
    (True, False)
    """
    of_a = dict(_conditions(tree.body, a))
    return any(of_a.get(test, arm) != arm for test, arm in _conditions(tree.body, b))


@lru_cache(maxsize=64)
def _parse(path: str, stamp: int) -> ast.Module | None:
    del stamp  # only part of the key: a changed file is parsed again
    try:
        return ast.parse(Path(path).read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _conditions(body: Sequence[ast.stmt], line: int) -> Iterator[Condition]:
    """The conditions under which a line is reached, outermost first."""
    for statement in body:
        first, last = _lines(statement)
        if first <= line <= last:
            yield from _inside(statement, line)
            return
        if last < line and isinstance(statement, ast.If):
            # A line after an `if` whose body leaves the block is reached only where the test fails.
            if _leaves(statement.body):
                yield from _normal(statement.test, 0)
            elif statement.orelse and _leaves(statement.orelse):
                yield from _normal(statement.test, 1)


def _inside(statement: ast.stmt, line: int) -> Iterator[Condition]:
    if isinstance(statement, ast.If):
        if _covers(statement.body, line):
            yield from _normal(statement.test, 1)
            yield from _conditions(statement.body, line)
        elif _covers(statement.orelse, line):
            yield from _normal(statement.test, 0)
            yield from _conditions(statement.orelse, line)
        return
    if isinstance(statement, ast.Match):
        for number, case in enumerate(statement.cases):
            if _covers(case.body, line):
                yield f"match {statement.lineno}", number
                yield from _conditions(case.body, line)
        return
    if not hasattr(statement, "body"):
        yield from _expression(statement, line)
        return
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if isinstance(block, list) and _covers(block, line):
            yield from _conditions(block, line)
    for handler in getattr(statement, "handlers", ()):
        if _covers(handler.body, line):
            yield from _conditions(handler.body, line)


def _expression(statement: ast.stmt, line: int) -> Iterator[Condition]:
    """The arm of a conditional expression in which a line stands, or all calls of the statement (a frame is at a call)."""
    calls = {node for node in ast.walk(statement) if isinstance(node, ast.Call)}
    for node in ast.walk(statement):
        if not isinstance(node, ast.IfExp):
            continue
        tested = _calls(node.test)
        for arm, chosen, other in ((1, node.body, node.orelse), (0, node.orelse, node.body)):
            here, there = _spans(chosen, line), _spans(other, line)
            if here and (not there or (_calls(chosen) and _calls(chosen) == calls - tested)):
                yield from _normal(node.test, arm)


def _calls(node: ast.expr) -> set[ast.Call]:
    return {child for child in ast.walk(node) if isinstance(child, ast.Call)}


def _spans(node: ast.expr, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _covers(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and _lines(body[0])[0] <= line <= _lines(body[-1])[1]


def _lines(statement: ast.stmt) -> tuple[int, int]:
    decorators = getattr(statement, "decorator_list", ())
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    return first, statement.end_lineno or statement.lineno


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether a block never runs on into the statement after it."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, (ast.Return, ast.Raise, ast.Continue, ast.Break))


def _normal(test: ast.expr, arm: int) -> Iterator[Condition]:
    """A test as conditions of equal text where the meaning is equal: `x != 0`, `x > 0`, `x` are one (no rank is negative)."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _normal(test.operand, 1 - arm)
        return
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And if arm else ast.Or):
        for value in test.values:
            yield from _normal(value, arm)
        return
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        operator, right = test.ops[0], test.comparators[0]
        if isinstance(right, ast.Constant) and right.value == 0 and type(right.value) is int:
            if isinstance(operator, ast.Eq):
                yield from _normal(test.left, 1 - arm)
                return
            if isinstance(operator, (ast.NotEq, ast.Gt)):
                yield from _normal(test.left, arm)
                return
        opposite = _OPPOSITE.get(type(operator))
        if opposite is not None:
            yield ast.dump(ast.Compare(left=test.left, ops=[opposite()], comparators=[right])), 1 - arm
            return
    yield ast.dump(test), arm
