"""Backwards that find the reducer unprepared, because another one has used up what the forwards before prepared."""

from __future__ import annotations

from ddp_audit.tree.nodes import Backward, Forward, Program
from ddp_audit.tree.questions import common_start, forwards_behind, switches
from ddp_audit.tree.values import Const, Obj
from ddp_audit_rules.facts.training import excludes


def used_up_by(program: Program, backward: Backward, own: list[Forward], wrapper: Obj) -> Backward | None:
    """The backward that used up what the forwards of this one prepared: an earlier one, or itself in an earlier turn of a loop."""
    if any(switches(program, f) for f in own):
        return None
    synced = [
        n
        for n in program.of(Forward)
        if n.object is not None and n.object.key == wrapper.key and n.grad is not False and n.through == "wrapper"
    ]
    common = min(common_start(f.loops, backward.loops) for f in own)
    inner = backward.loops[common:]
    if inner and not any(inner[0] in f.loops for f in synced):
        count = inner[0].count
        once = isinstance(count, Const) and count.value in (0, 1)
        if not once and not any(g.loops > common for g in backward.guards):
            return backward
    for earlier in program.of(Backward):
        if earlier.number >= backward.number or earlier.loops != backward.loops or excludes(earlier, backward):
            continue
        before = [f for f in forwards_behind(program, earlier) if f.object is not None and f.object.key == wrapper.key]
        if not before or any(switches(program, f) for f in before) or "inputs" in earlier.args:
            continue
        if max(f.number for f in own) > earlier.number or any(earlier.number < f.number < backward.number for f in synced):
            continue
        return earlier
    return None
