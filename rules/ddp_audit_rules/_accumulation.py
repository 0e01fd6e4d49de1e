"""Windows of micro-batches whose gradients are accumulated for one step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddp_audit.patterns import pattern
from ddp_audit.program.made import behind
from ddp_audit.program.model import Loop, Node, Program
from ddp_audit.program.values import Const, Expr, Value
from ddp_audit_rules._losses import is_world_size

WINDOW = pattern(r"accum|micro|grad_acc|acc_steps|accu", re.IGNORECASE)


def window_of(program: Program, backward: Node) -> Value | None:
    """The number of micro-batches that are accumulated for one step, where the code says it in one value."""
    for step in program.of("step"):
        if step.number < backward.number or backward.calls[:1] != step.calls[:1]:
            continue
        if backward.loops == step.loops:
            own = [g for g in step.guards if not any(g.span == other.span for other in backward.guards)]
            zeros = [z for z in program.of("zero-grad") if z.loops == step.loops]
            guarded = zeros and all(any(g.span == o.span or g.text == o.text for o in z.guards for g in own) for z in zeros)
            found = [w for g in own for w in _modulus(g.test)]
            return found[0] if found and guarded else None
        if backward.loops[:-1] == step.loops:
            inner = backward.loops[-1]
            cleared = [z for z in program.of("zero-grad") if inner in z.loops]
            return inner.count if inner.count is not None and not cleared and _is_window(inner) else None
    return None


def _is_window(loop: Loop) -> bool:
    return bool(WINDOW.search(loop.text)) and "len(" not in loop.text


def _modulus(test: Value) -> Iterator[Value]:
    for value in behind(test):
        if isinstance(value, Expr) and value.op == "%" and len(value.args) == 2:
            yield value.args[1]


def is_window_itself(value: Value, window: Value) -> bool:
    """Whether a divisor is the window: one value, one option, or the same number written twice."""
    while isinstance(window, Expr) and window.op in ("int", "float"):
        window = window.args[0]
    for part in behind(value):
        if isinstance(part, Const) and isinstance(window, Const):
            if part.default is not None and window.default is not None:
                if part.default.name == window.default.name:
                    return True
            elif part.value == window.value:
                return True
        elif part.text and part.text == window.text:
            return True
    return False


def is_made_of_window(factor: Value, window: Value) -> bool:
    """Whether a factor is made of the window, such as 1 / window."""
    return not is_world_size(factor) and is_window_itself(factor, window)
