"""Flags that a rank sets on its way out of one loop and asks for in the loop around it: one decision, which two jumps follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ddp_audit.tree.nodes import Jump, Program
from ddp_audit.tree.questions import arms_around, code_at, dotted, every, function_at
from ddp_audit_rules.collectives._skips import Skip


def carried(program: Program, found: Sequence[Skip]) -> dict[int, Skip]:
    """The skips that only follow another one, by their id, each with that one: `stop = True; break` and then `if stop: break`."""
    jumps = [skip for skip in found if isinstance(skip.node, Jump)]
    followed: dict[int, Skip] = {}
    for outer in jumps:
        flag = _asked(program, outer)
        shown = [skip for skip in jumps if skip.confidence == "likely" or outer.confidence == "possible"]
        inner = [skip for skip in shown if flag and _is_inside(program, skip, outer) and flag in _set_before(program, skip)]
        if inner and all(any(store in _arm(program, skip) for skip in inner) for store in _ups(program, inner[0], flag)):
            followed[id(outer)] = inner[0]
    return followed


def _is_inside(program: Program, inner: Skip, outer: Skip) -> bool:
    """Whether a jump leaves a loop inside of the one that the other jump is in, in the same run of the same function."""
    one, other = inner.node, outer.node
    if one.span.path != other.span.path or [c.line for c in one.calls] != [c.line for c in other.calls]:
        return False
    around = [loop.span for loop in other.loops]
    nested = len(one.loops) > len(around) > 0 and [loop.span for loop in one.loops][: len(around)] == around
    return nested and function_at(program, one.span.path, one.span.line) is function_at(program, other.span.path, other.span.line)


def _asked(program: Program, skip: Skip) -> str:
    """The flag that a condition asks for and nothing else: `stop`, `not self.running`, `stop is True`; empty where it asks more."""
    test = code_at(program, skip.guard.span, ast.expr)
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Compare) and all(isinstance(one, ast.Constant) for one in test.comparators):
        test = test.left
    return dotted(test) if isinstance(test, ast.expr) else ""


def _arm(program: Program, skip: Skip) -> list[ast.stmt]:
    """The statements of the arm that a jump stands in, down to the jump."""
    arms = arms_around(program, skip.node.span.path, skip.node.span.line)
    body = getattr(arms[0].statement, arms[0].part) if arms else []
    return [one for one in body if isinstance(one, ast.stmt) and one.lineno <= skip.node.span.line]


def _set_before(program: Program, skip: Skip) -> set[str]:
    """What gets a constant in the arm of a jump."""
    return {name for one in _arm(program, skip) for name in _targets(one) if isinstance(getattr(one, "value", None), ast.Constant)}


def _ups(program: Program, skip: Skip, flag: str) -> Iterator[ast.AST]:
    """Every statement that may give a flag what the arm of a jump gives it, or something else that is not known."""
    given = [one for one in _arm(program, skip) if flag in _targets(one)]
    value = getattr(given[-1], "value", None)
    scope = function_at(program, skip.node.span.path, skip.node.span.line) if "." not in flag else None
    last = flag.rpartition(".")[2]
    root = scope or program.files[skip.node.span.path].tree
    for node in every(root):
        if not isinstance(node, ast.stmt) or not any(name.rpartition(".")[2] == last for name in _targets(node)):
            continue
        to = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if not isinstance(to, ast.Constant) or not isinstance(value, ast.Constant) or bool(to.value) == bool(value.value):
            yield node


def _targets(node: ast.AST) -> set[str]:
    """The names and attributes to which a statement gives a value."""
    match node:
        case ast.Assign(targets=targets):
            pass
        case ast.AnnAssign(target=target, value=ast.expr()) | ast.AugAssign(target=target) | ast.For(target=target):
            targets = [target]
        case ast.With(items=items):
            targets = [item.optional_vars for item in items if item.optional_vars is not None]
        case _:
            return set()
    places = [one for target in targets for one in every(target) if isinstance(one, (ast.Name, ast.Attribute))]
    return {dotted(one) for one in places if isinstance(one.ctx, ast.Store)} - {""}
