"""Which lines of a script a recorded run reached, by the frames of what it recorded and the order of the statements around them.

A trace holds no list of lines. It holds the user's frames of each event, and of the exception that ended a rank. A frame in a
line proves more than that line: the statements before it in its own block ran as well, in each block around it. The same order
tells what never ran: where each rank ended in a line of code that runs once, nothing behind that line did. Where neither is so, the
run does not tell. Source files are parsed and never executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ddp_audit.compare.run import EXITED, RAISED, RecordedRun, last_of, same_file
from ddp_audit.events import EXCEPTION, Event, Site
from ddp_audit.findings import Span
from ddp_audit.source.files import decode, parse_text, read_bytes
from ddp_audit.source.problems import SourceError

_Functions = (ast.FunctionDef, ast.AsyncFunctionDef)
_Loops = (ast.For, ast.AsyncFor, ast.While)
Step: TypeAlias = "tuple[list[ast.stmt], int]"  # a block, and which of its statements


@dataclass(slots=True)
class Reached:
    """What a run tells of lines. `says` answers true, false, or None where the run does not tell."""

    run: RecordedRun
    _trees: dict[str, ast.Module | None] = field(default_factory=dict)
    _sites: dict[str, set[int]] = field(default_factory=dict)  # lines of all recorded frames, by path
    _ends: list[list[Site] | None] | None = None

    def says(self, span: Span) -> bool | None:
        """Whether any rank reached the first line of a span."""
        lines = self._lines_in(span.path)
        if any(span.line <= line <= span.end_line for line in lines):
            return True
        tree = self._tree(span.path)
        way = [] if tree is None else list(_way(tree.body, span.line))
        if tree is None or not way:
            return None
        if any(_ran_before(way, list(_way(tree.body, line)), span.line) for line in lines):
            return True
        ends = self._last_frames()
        if ends and all(frames is not None and self._is_behind(tree, way, frames, span.path) for frames in ends):
            return False
        return None

    def _lines_in(self, path: str) -> set[int]:
        if not self._sites:
            for _, event in self.run.all_events():
                for site in (*event.stack, *((event.site,) if event.site is not None else ())):
                    self._sites.setdefault(site.path, set()).add(site.line)
        return {line for known, lines in self._sites.items() if same_file(known, path) for line in lines}

    def _tree(self, path: str) -> ast.Module | None:
        if path not in self._trees:
            try:
                self._trees[path] = parse_text(decode(read_bytes(path), path), path)
            except SourceError:
                self._trees[path] = None
        return self._trees[path]

    def _last_frames(self) -> list[list[Site] | None]:
        """The user's frames in which each rank ended or stands, outermost first; None for a rank of which they are not known."""
        if self._ends is None:
            self._ends = []
            for rank in range(self.run.world_size):
                one = self.run.ranks.get(rank)
                event: Event | None = None
                if one is not None and one.state != EXITED:
                    event = last_of(one.events, EXCEPTION) if one.state == RAISED else one.waiting
                frames = [] if event is None else list(reversed(event.stack))
                # The frames of a deep stack lack the outermost ones.
                self._ends.append(frames if frames and frames[0].function == "<module>" else None)
        return self._ends

    def _is_behind(self, tree: ast.Module, way: Sequence[Step], frames: Sequence[Site], path: str) -> bool:
        """Whether a rank that ended in these frames cannot have come to a line, since all that leads there runs once."""
        start = 0  # statements of the way that are outside of the function that the frame is in
        for number, frame in enumerate(frames):
            if not same_file(frame.path, path):
                return False
            for mine, (block, at) in zip(way[start:], list(_way(tree.body, frame.line))[start:], strict=False):
                if mine[0] is not block:
                    return False  # another arm of one statement
                if mine[1] > at:
                    return True
                if mine[1] < at:
                    break
                if isinstance(block[at], _Loops):
                    return False  # an earlier iteration may have gone on
            below = frames[number + 1] if number + 1 < len(frames) else None
            entered = _function_at(tree, below.line) if below is not None and same_file(below.path, path) else None
            if entered is None or not _is_called_once(tree, entered):
                return False
            start = next((depth + 1 for depth, (block, at) in enumerate(way) if block[at] is entered), 0)
            if not start:
                return False  # the line is in another function, which may have been called before
        return False


def _way(block: list[ast.stmt], line: int) -> Iterator[Step]:
    """The statements that hold a line, from the outermost to the innermost, each with its block."""
    while True:
        found = next((n for n, one in enumerate(block) if _first(one) <= line <= (one.end_lineno or one.lineno)), None)
        if found is None:
            return
        yield block, found
        inner = (body for body in _bodies(block[found]) if body and _first(body[0]) <= line <= (body[-1].end_lineno or 0))
        block = next(inner, [])


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(one.lineno for one in decorators)])


def _ran_before(way: Sequence[Step], seen: Sequence[Step], line: int) -> bool:
    """Whether a line runs before one that was seen, whose statements are `seen`, or with it."""
    for depth, (block, at) in enumerate(way):
        if depth >= len(seen) or seen[depth][0] is not block:
            return False  # another block of the same statement: an arm that the run need not have taken
        if at > seen[depth][1]:
            return False
        if _heads(block[at], line):
            return True
        if at < seen[depth][1]:
            return _always_runs(block[at], line)
    return False


def _heads(statement: ast.stmt, line: int) -> bool:
    """Whether a line is in a simple statement, or in the head of a compound one (a test, what a loop goes over)."""
    first = min((_first(body[0]) for body in _bodies(statement) if body), default=None)
    return first is None or line < first


def _always_runs(statement: ast.stmt, line: int) -> bool:
    """Whether a line in a compound statement runs whenever that does: only the first one of a `with` or a `try`."""
    while isinstance(statement, (ast.With, ast.AsyncWith, ast.Try)):
        statement = statement.body[0]
        if _first(statement) <= line <= (statement.end_lineno or 0) and _heads(statement, line):
            return True
    return False


def _function_at(tree: ast.Module, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The innermost function that holds a line."""
    found = None
    for block, at in _way(tree.body, line):
        if isinstance(block[at], _Functions):
            found = block[at]
    return found if isinstance(found, _Functions) else None


def _is_called_once(
    tree: ast.Module, function: ast.FunctionDef | ast.AsyncFunctionDef, within: frozenset[str] = frozenset()
) -> bool:
    """Whether a function of a module is named once in it, outside of loops and of functions that may run again."""
    uses = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id == function.name and isinstance(node.ctx, ast.Load))
        or (isinstance(node, ast.Attribute) and node.attr == function.name)
    ]
    if len(uses) != 1 or function.decorator_list or function.name in within:
        return False
    for block, at in _way(tree.body, uses[0].lineno):
        statement = block[at]
        if isinstance(statement, (*_Loops, ast.ClassDef)):
            return False
        if isinstance(statement, _Functions) and not _is_called_once(tree, statement, within | {function.name}):
            return False
    return True
