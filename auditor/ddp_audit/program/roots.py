"""Where runs begin: the script, and each function that nothing calls, which is read on its own."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_audit.program.model import Branch, CallItem, Item, Node, Program, TryItem


def roots(program: Program) -> list[list[Node]]:
    """The nodes of the script, then those of each function that nothing calls, in order of execution."""
    of_leftovers: set[int] = set()
    blocks: list[list[Node]] = []
    for item in program.tree:
        if isinstance(item, CallItem):
            inside = nodes_in(item.body)
            if inside and inside[0].calls[:1] != (item.span,):
                of_leftovers.update(n.number for n in inside)
                blocks.append(inside)
    blocks.insert(0, [n for n in program.nodes if n.number not in of_leftovers])
    return blocks


def root_of(program: Program, node: Node) -> list[Node]:
    """The nodes of the root that a node belongs to."""
    return next((nodes for nodes in roots(program) if any(other is node for other in nodes)), [])


def nodes_in(items: Sequence[Item]) -> list[Node]:
    """Every node in some blocks, in order."""
    found: list[Node] = []
    _collect(items, found)
    return found


def _collect(items: Sequence[Item], found: list[Node]) -> None:
    for item in items:
        if isinstance(item, Node):
            found.append(item)
        elif isinstance(item, Branch):
            _collect(item.then, found)
            _collect(item.orelse, found)
        elif isinstance(item, TryItem):
            for block in (item.body, *item.handlers, item.final):
                _collect(block, found)
        else:
            _collect(item.body, found)


__all__ = ["nodes_in", "root_of", "roots"]
