"""Loops in another form than they are: those over one element or a few functions, and `while` loops that are an `if` or a `for`.

Each pass over a short display is a piece of straight code. Where a condition chose the display, what it holds is gone through
where the condition holds.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program import exits
from ddp_audit.program.sides import on_both_sides
from ddp_audit.program.values import Alt, Bound, Expr, Ext, Func, Items, Obj, Value, named

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_MOST_PASSES = 4
_CALLED = (Func, Bound, Ext)


def is_unrolled(lw: Lowering, node: ast.For | ast.AsyncFor, over: Value) -> bool:
    """Whether a loop is walked pass by pass."""
    if lw.here.source.fact("leaves", node, _leaves):
        return False
    chosen = _chosen(over)
    return _few(over, least=1) if chosen is None else all(_few(part, least=0) for part in chosen[1:])


def _chosen(over: Value) -> tuple[Value, Value, Value] | None:
    """What decides between two displays, and both of them."""
    match over:
        case Alt(choice=Expr() as choice, options=(then, orelse)):
            return choice, then, orelse
    return None


def _few(over: Value, least: int) -> bool:
    if not isinstance(over, Items) or over.many or over.filled or over.keys is not None:
        return False
    if len(over.items) < 2:
        return len(over.items) >= least
    called = all(isinstance(one, _CALLED) or (isinstance(one, Obj) and one.kind == "partial") for one in over.items)
    return called and len(over.items) <= _MOST_PASSES and over.kind != "set"


def _leaves(node: ast.AST) -> bool:
    """Whether a pass may end before its last statement, or the loop before its last pass."""
    return any(isinstance(inner, (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom)) for inner in ast.walk(node))


def run(lw: Lowering, node: ast.For | ast.AsyncFor, over: Value) -> None:
    """Walks the passes."""
    chosen = _chosen(over)
    if chosen is None:
        _passes(lw, node, over)
        return
    choice, *parts = chosen
    guards = [lw.guard(choice, polarity, node.iter, "if") for polarity in (True, False)]
    on_both_sides(lw, choice, guards, lambda part: _passes(lw, node, part), parts)


def _passes(lw: Lowering, node: ast.For | ast.AsyncFor, over: Value) -> None:
    assert isinstance(over, Items)
    depth = len(lw.guards)
    for element in over.items:
        lw.assign(node.target, named(element, node.target.id) if isinstance(node.target, ast.Name) else element)
        with exits.collected(lw, loop=True):
            lw.run_block(node.body)
        del lw.guards[depth:]


def as_branch(node: ast.While) -> ast.If | None:
    """A `while` that is left at the end of its first pass as the `if` that it is; None for a loop."""
    *body, last = node.body
    if not isinstance(last, ast.Break) or node.orelse or any(map(_goes_round, body)):
        return None
    if isinstance(node.test, ast.Constant):
        return None
    return ast.copy_location(ast.If(node.test, body or [ast.copy_location(ast.Pass(), last)], []), node)


def _goes_round(node: ast.AST) -> bool:
    """Whether a statement breaks or continues, be it an inner loop that it does this to."""
    return any(isinstance(inner, (ast.Break, ast.Continue)) for inner in ast.walk(node))


def as_for(node: ast.While) -> ast.For | None:
    """A `while` that takes the next of one iterator at the start of each pass, as the `for` that it is; None for any other."""
    match node:
        case ast.While(test=ast.Constant(value=True | 1), orelse=[], body=[ast.Try() as taken, *rest]) if rest:
            match taken:
                case ast.Try(
                    body=[ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id="next"), args=[ast.Name() as source]))],
                    handlers=[ast.ExceptHandler(type=ast.Name(id="StopIteration"), body=[ast.Break()])],
                    orelse=[],
                    finalbody=[],
                ):
                    return ast.copy_location(ast.For(target, source, rest, []), node)
        case ast.While(
            test=ast.Compare(
                left=ast.NamedExpr(target=target, value=ast.Call() as taken_next), ops=[ast.IsNot()], comparators=[asked]
            ),
            orelse=[],
            body=rest,
        ):
            match taken_next:
                case ast.Call(func=ast.Name(id="next"), args=[ast.Name() as source, end]) if ast.dump(end) == ast.dump(asked):
                    return ast.copy_location(ast.For(target, source, rest, []), node)
    return None


def as_loops(node: ast.ListComp | ast.SetComp) -> ast.stmt:
    """A comprehension of which nobody takes the elements as the loops that it is."""
    inner: ast.stmt = ast.copy_location(ast.Expr(node.elt), node.elt)
    for generator in reversed(node.generators):
        for condition in reversed(generator.ifs):
            inner = ast.copy_location(ast.If(condition, [inner], []), condition)
        inner = ast.copy_location(ast.For(generator.target, generator.iter, [inner], []), node)
    return inner
