"""Questions that the tests of the lowering ask of a program."""

from __future__ import annotations

from typing import Any, TypeVar

from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Node
from ddp_audit.program.values import Value, World, evaluate

N = TypeVar("N", bound=Node)


def only(program: Program, kind: type[N]) -> N:
    """The one node of a kind."""
    found = list(program.of(kind))
    assert len(found) == 1, [(n.kind, n.span.line, n.text) for n in found]
    return found[0]


def by_rank(value: Value, worlds: list[World]) -> list[Any]:
    """What a value is on each rank."""
    return [evaluate(value, world) for world in worlds]


def who(node: Node, size: int = 4, local: int = 2) -> list[bool | None]:
    """Whether each rank of one job gets to a node."""
    return [node.reached_by(World(rank, size, local)) for rank in range(size)]


def line_of(program: Program, text: str, path: str = "train.py") -> int:
    """The number of the only line that holds a text."""
    found = [number for number, line in enumerate(program.sources[path], 1) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]
