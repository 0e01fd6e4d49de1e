"""Take the shapes of scripts: how their blocks are nested, and nothing of what they say."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from oracle.grammar import Shape

_MOST = 60  # statements of a shape
_DEEPEST = 8
_LEAST = 8  # statements of a function whose shape is worth a program


def shapes_of(folder: str) -> list[tuple[Shape, ...]]:
    """The shapes of the module levels and functions of every Python file below a folder, equal ones once, in a fixed order."""
    found: dict[tuple[Shape, ...], None] = {}
    for path in sorted(_files(folder)):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, OSError):
            continue
        bodies = [tree.body, *(n.body for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)))]
        for body in bodies:
            shape = _shape(body, [_MOST], 0)
            if _size(shape) >= _LEAST and any(one.parts for one in shape):
                found.setdefault(shape)
    return list(found)


def _files(folder: str) -> Iterator[Path]:
    for top, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(top, name) for name in names if name.endswith(".py"))


def _size(shape: Sequence[Shape]) -> int:
    return sum(1 + sum(_size(part) for part in one.parts) for one in shape)


def _shape(body: Sequence[ast.stmt], left: list[int], depth: int) -> tuple[Shape, ...]:
    """The shape of a block; `left` counts down the statements that it may still have."""
    out: list[Shape] = []
    for node in body:
        if left[0] <= 0 or depth > _DEEPEST:
            break
        left[0] -= 1

        def inner(*blocks: Sequence[ast.stmt], depth: int = depth) -> tuple[tuple[Shape, ...], ...]:
            return tuple(_shape(block, left, depth + 1) for block in blocks if block)

        match node:
            case ast.If():
                out.append(Shape("if", inner(node.body, node.orelse)))
            case ast.For() | ast.AsyncFor():
                out.append(Shape("for", inner(node.body)))
            case ast.While():
                out.append(Shape("while", inner(node.body)))
            case ast.Try():
                out.append(Shape("try", inner(node.body, *(handler.body for handler in node.handlers[:1]))))
            case ast.With() | ast.AsyncWith():
                out.append(Shape("with", inner(node.body)))
            case ast.Break():
                out.append(Shape("break"))
            case ast.Continue():
                out.append(Shape("continue"))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
                left[0] += 1
            case _:
                out.append(Shape("statement"))
    return tuple(out)
