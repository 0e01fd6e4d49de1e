"""Questions that the tests of the lowering ask of a program."""

from __future__ import annotations

from typing import Any

from ddp_audit.program.model import Node, Program
from ddp_audit.program.values import World, evaluate


def only(program: Program, *kinds: str) -> Node:
    """The one node of these kinds."""
    found = list(program.of(*kinds))
    assert len(found) == 1, [(n.kind, n.span.line, n.text) for n in found]
    return found[0]


def by_rank(node: Node, name: str, worlds: list[World]) -> list[Any]:
    """What an argument of a node is on each rank."""
    return [evaluate(node.args[name], world) for world in worlds]


def who(node: Node, size: int = 4, local: int = 2) -> list[bool | None]:
    """Whether each rank of one job gets to a node."""
    return [node.reached_by(World(rank, size, local)) for rank in range(size)]


def line_of(program: Program, text: str, path: str = "train.py") -> int:
    """The number of the only line that holds a text."""
    found = [number for number, line in enumerate(program.sources[path], 1) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]
