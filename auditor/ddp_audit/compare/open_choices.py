"""Whether a difference between prediction and record comes from a choice that the program left open.

A condition that is not known is taken one way, and a loop of unknown length runs a few times. Where the run did otherwise, what it
sent next stands in the arm that was not taken, or what was predicted next in the arm that was: nothing is known from there on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ddp_audit.compare.predicted import Difference, Disagrees
from ddp_audit.compare.run import same_file
from ddp_audit.events import Event
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact.state import Doubt

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_LAST = 1 << 30  # the line after which a file has no more
_CHOICES = (ast.If, ast.IfExp, ast.While, ast.For, ast.AsyncFor, ast.Match)


def explained(
    found: Disagrees, doubts: Sequence[Doubt], events: Sequence[Event], tree_of: Callable[[str], ast.Module | None]
) -> str:
    """The open choice before a difference that it comes from, as a sentence's end; empty without one."""
    difference = found.difference
    if difference is None:
        return ""
    at = next((n for n, event in enumerate(events) if event is difference.predicted), len(events))
    for doubt in reversed(doubts):
        if doubt.key is None or doubt.begun > at or not doubt.key[1]:
            continue
        path, line, _ = doubt.key
        tree = tree_of(path)
        if tree is not None and any(_inside(difference, path, first, last) for first, last in _spans(tree, line)):
            return f"{doubt.what} was taken for granted, and the run did otherwise ({place_of(path, line)})"
    return ""


def _spans(tree: ast.Module, line: int) -> Iterable[tuple[int, int]]:
    """The lines of what the condition in a line decides: its statement, and the loop or function that an arm leaves."""
    return _decided(tree, line, tree, tree)


def _decided(node: ast.AST, line: int, loop: ast.AST, function: ast.AST) -> Iterable[tuple[int, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _CHOICES):
            test = child.iter if isinstance(child, _LOOPS[:2]) else child.subject if isinstance(child, ast.Match) else child.test
            if test.lineno <= line <= (test.end_lineno or test.lineno):
                left = [inner for inner in ast.walk(child) if isinstance(inner, (ast.Break, ast.Continue, ast.Return))]
                out = [loop] if any(not isinstance(inner, ast.Return) for inner in left) else []
                out += [function] if any(isinstance(inner, ast.Return) for inner in left) else []
                for decided in (child, *out):
                    yield getattr(decided, "lineno", 1), getattr(decided, "end_lineno", None) or _LAST
        inner = child if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        yield from _decided(child, line, child if isinstance(child, _LOOPS) else loop, inner)


def _inside(difference: Difference, path: str, first: int, last: int) -> bool:
    """Whether one side stands in these lines, itself or by its callers, and the other does not do the same there."""
    sides = [_stands(event, path, first, last) for event in (difference.predicted, difference.recorded)]
    return sides[0] != sides[1] or (all(sides) and difference.what in ("op", "origin", "site"))


def _stands(event: Event | None, path: str, first: int, last: int) -> bool:
    places = () if event is None else (*((event.site,) if event.site is not None else ()), *event.stack)
    return any(first <= place.line <= last and same_file(place.path, path) for place in places)
