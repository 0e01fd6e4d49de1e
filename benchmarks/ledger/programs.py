"""The deciding unknowns of the program that the rules ask: guards and loops around what matters whose answer cannot be computed."""

from __future__ import annotations

from collections.abc import Iterator

from ddp_audit.program.model import Guard, Program
from ddp_audit.program.nodes.communication import Collective, Destroy, Init, NewGroup, PointToPoint, Wait
from ddp_audit.program.nodes.flow import Check
from ddp_audit.program.nodes.job import Spawn, UnfollowedCall
from ddp_audit.program.nodes.training import Backward, Step, Wrap
from ddp_audit.program.values import Alt, Bound, Const, Expr, Ext, Func, Items, Obj, Unknown, Value, truth, worlds
from ledger.runs import Loss

KINDS = (Init, NewGroup, Wrap, Backward, Step, Collective, Wait, PointToPoint, Destroy, Spawn, Check, UnfollowedCall)
_DEEPEST = 12


def losses_of(program: Program) -> Iterator[Loss]:
    """Each once, by its place."""
    seen: set[tuple[str, str, int]] = set()
    for node in program.of(*KINDS):
        if isinstance(node, UnfollowedCall):
            key = ("call", node.span.path, node.span.line)
            if key not in seen:
                seen.add(key)
                yield Loss("call", f"not followed: {node.name}", node.span.place)
            continue
        for guard in node.guards:
            key = ("branch", guard.span.path, guard.span.line)
            if key not in seen and guard.via != "except" and _is_open(guard):
                seen.add(key)
                yield Loss("branch", cause_of(guard.test), guard.span.place)
        for loop in node.loops:
            key = ("loop", loop.span.path, loop.span.line)
            if key in seen or loop.kind != "for" or (loop.count is not None and not isinstance(loop.count, Unknown)):
                continue
            seen.add(key)
            yield Loss(
                "loop", cause_of(loop.count if isinstance(loop.count, Unknown) and loop.count.by else loop.over), loop.span.place
            )


def _is_open(guard: Guard) -> bool:
    return any(truth(guard.test, world) is None for world in worlds(guard.world_size))


def cause_of(value: Value | None, depth: int = 0) -> str:
    """The first unknown that a value was computed from, in words."""
    if value is None or depth > _DEEPEST:
        return "not said"
    match value:
        case Unknown(by=None):
            if value.text.startswith("except"):
                return "an exception"
            return "name or attribute without value" if value.text else "unknown without a name"
        case Unknown(by=made) if made is not None:
            for part in (*made.args, *(part for _, part in made.named)):
                if _has_unknown(part):
                    return cause_of(part, depth + 1)
            return {"[]": "index", "?": "call not followed", "returned": "what a module of the project returns"}.get(made.name) or (
                f"attribute {made.name}" if made.name.startswith(".") else f"call {made.name}()"
            )
        case Expr(op=op, args=args):
            for part in args:
                if _has_unknown(part):
                    return cause_of(part, depth + 1)
            return f"index of a loop ({op.partition(':')[0]})" if op.startswith("loop:") else f"operation {op}"
        case Items(items=items):
            return next((cause_of(item, depth + 1) for item in items if _has_unknown(item)), "a container with one item for all")
        case Alt(options=options, choice=choice):
            if choice is not None and _has_unknown(choice):
                return cause_of(choice, depth + 1)
            return next((cause_of(option, depth + 1) for option in options if _has_unknown(option)), "one of several values")
        case Bound(receiver=receiver, name=name):
            return cause_of(receiver, depth + 1) if _has_unknown(receiver) else f"method {name}"
        case Obj(kind=kind):
            return f"an object of the kind {kind}"
        case Ext(name=name):
            return f"the name {name}"
        case Func():
            return "a function"
        case Const():
            return "a constant"
    return type(value).__name__


def _has_unknown(value: Value, depth: int = 0) -> bool:
    match value:
        case Unknown():
            return True
        case Const() | Func() | Ext() | Obj():
            return False
        case Expr(args=args) | Items(items=args) | Alt(options=args):
            if isinstance(value, Expr) and value.op.startswith("loop:"):
                return True
            if isinstance(value, Alt) and (value.choice is None or _has_unknown(value.choice, depth + 1)):
                return True
            return depth < _DEEPEST and any(_has_unknown(part, depth + 1) for part in args)
    return True
