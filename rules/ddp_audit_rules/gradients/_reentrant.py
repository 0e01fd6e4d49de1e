"""Re-entrant checkpoints over layers that are used again, and static graphs whose first forward is not synchronised."""

from __future__ import annotations

from typing import Any

from ddp_audit.findings import Span
from ddp_audit.tree.nodes import Backward, Checkpoint, Forward, Inside, ModuleUse, Node, Program
from ddp_audit.tree.questions import atoms, forwards_behind, is_off, opened, passes, switches
from ddp_audit.tree.values import Const, Key, World
from ddp_audit_rules.facts.training import excludes
from ddp_audit_rules.gradients._model_parts import recomputed


def is_reentrant(node: Checkpoint) -> bool:
    """Whether a checkpoint is surely re-entrant, by its option or by default."""
    given = node.use_reentrant
    return isinstance(given, Const) and given.value in (True, None) and not (given.default is not None and given.default.open)


def used_again(program: Program, inside: Inside, nodes: list[Checkpoint], node: Node, keys: set[Key]) -> Node | None:
    """What else uses one of these layers than a checkpoint: an earlier one, a plain call, or the checkpoint itself in a loop."""
    if not keys:
        return None
    loop = node.loops[-1] if node.loops else None
    if loop is not None and not (isinstance(loop.count, Const) and loop.count.value in (0, 1)):
        return node
    for other in nodes:
        if other.number < node.number and keys & recomputed(program, other) and not excludes(other, node):
            return other
    ranges = [(n.first, n.number) for n in inside.nodes if isinstance(n, Checkpoint)]
    for use in inside.nodes:
        if not isinstance(use, ModuleUse) or use.object is None or any(first <= use.number <= last for first, last in ranges):
            continue
        given = any(_within(use.span, n.span) for n in inside.nodes if isinstance(n, Checkpoint))
        whole = use.object.key not in inside.followed
        touched = program.modules.inside(use.object.key) if whole else {use.object.key}
        if not given and keys & touched and not excludes(use, node):
            return use
    return None


def _within(inner: Span, outer: Span) -> bool:
    if inner.path != outer.path:
        return False
    start, end = (outer.line, outer.column), (outer.end_line, outer.end_column)
    return start <= (inner.line, inner.column) and (inner.end_line, inner.end_column) <= end


def first_unsynced(program: Program, wrap: Node) -> Node | None:
    """The first forward through a wrapper that is trained on, where it runs unsynchronised; None where it does not, or may not."""
    behind = {f.number for b in program.of(Backward) for f in forwards_behind(program, b)}
    key = None if wrap.object is None else wrap.object.key
    mine = [n for n in program.of(Forward) if n.number in behind and n.object is not None and n.object.key == key]
    for forward in mine:
        found = switches(program, forward)
        tests = [s.test for s in found if s.test is not None] + [g.test for g in forward.guards]
        names = set().union(*(atoms(opened(test)) or set() for test in tests))
        options = {name: _window(program, name.removeprefix("option ")) for name in names if name.startswith("option ")}
        world = World(0, 2, 2, {**{name: 0 for name in names if name.startswith("loop:")}, **options})
        reached = passes(tuple(g for g in forward.guards if g.admits(world) is not True), world)
        if reached is not False:
            return forward if reached and found and is_off(found, world) else None
    return None


def _window(program: Program, name: str) -> Any:
    """What an option is supposed to be: its default, or a window of several batches where it has none."""
    return program.config[name].value if name in program.config else 4
