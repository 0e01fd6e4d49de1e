"""What stands around a place that clips gradients, and which sums of norms are too great."""

from __future__ import annotations

import ast

from ddp_audit.tree.nodes import Backward, Clip, Guard, Node, Program, ScalerCall, Step, Unscale, ZeroGrad
from ddp_audit.tree.questions import attribute_path, code_within, dotted, every, is_kind, passes_of, says
from ddp_audit.tree.values import Const, Expr, Value, behind, operation_of
from ddp_audit_rules.facts.training import excludes


def step_after(program: Program, clip: Clip) -> Step | None:
    """The step that uses what a clip has cut."""
    steps = [n for n in program.of(Step) if n.number > clip.number and n.calls[:1] == clip.calls[:1]]
    same = [n for n in steps if not excludes(n, clip)]
    # The step of the window may stand in the other arm of the condition that puts the micro-batch into no_sync().
    inside = any(block.test is None for block in clip.no_sync)
    return next(iter(same or [n for n in steps if inside and n.loops == clip.loops]), None)


def backward_before(program: Program, clip: Clip) -> Backward | None:
    """The backward pass whose gradients a clip cuts."""
    before = [n for n in program.of(Backward) if n.number < clip.number and not excludes(n, clip)]
    return before[-1] if before else None


def _is_one(guard: Guard, other: Guard) -> bool:
    """Whether two guards are one condition, or say the same twice."""
    return guard.span == other.span or (guard.text == other.text and guard.polarity == other.polarity)


def is_taken_more_often(program: Program, clip: Node, step: Node, backward: Node) -> bool:
    """Whether several clips come before one step: the step waits for a window and the clip does not."""
    if any(block.test is None for block in clip.no_sync):
        return True
    zeros = [z for z in program.of(ZeroGrad) if z.calls[:1] == step.calls[:1]]
    if clip.loops == step.loops == backward.loops:
        own = [g for g in step.guards if not any(_is_one(g, other) for other in clip.guards)]
        waits = any(isinstance(v, Expr) and v.op == "%" for g in own for v in behind(g.test))
        cleared = [z for z in zeros if z.loops == step.loops and not any(_is_one(g, o) for g in own for o in z.guards)]
        return waits and bool(zeros) and not cleared
    if len(clip.loops) == len(step.loops) + 1 and clip.loops == backward.loops and clip.loops[:-1] == step.loops:
        inner = clip.loops[-1]
        return passes_of(inner) is not None and not any(inner in z.loops for z in zeros)
    return False


def is_of_scaled_gradients(program: Program, clip: Clip, step: Step, backward: Backward) -> bool:
    """Whether gradients carry the factor of a GradScaler when they are clipped, which the step takes out afterwards."""
    if not step.scaler or not _is_scaled_loss(backward.target):
        return False
    unscaled = [n for n in program.of(Unscale) if backward.number < n.number < clip.number and not excludes(n, clip)]
    return not unscaled and not _is_scaler_off(program)


def _is_scaled_loss(loss: Value | None) -> bool:
    """Whether a loss carries the factor of a GradScaler."""
    return loss is not None and any(operation_of(value) == "scale" for value in behind(loss))


def _is_scaler_off(program: Program) -> bool:
    """Whether a scaler is made that does nothing."""
    made = [n for n in program.of(ScalerCall) if n.what == "made"]
    return any(isinstance(off := n.args.get("enabled"), Const) and off.value is False and off.default is None for n in made)


def is_norm(value: Value) -> bool:
    """Whether a value is the norm of gradients, or its square."""
    found = list(behind(value))
    if any(operation_of(inner) == "clip" for inner in found):
        return True
    of_gradients = any("grad" in attribute_path(inner) or operation_of(inner) == ".grad" for inner in found)
    return of_gradients and any(is_kind(inner, "square") or says(f"{operation_of(inner)} {inner.text}", "norm") for inner in found)


def is_divided_after(program: Program, node: Node) -> bool:
    """Whether the lines behind an all_reduce make a mean of the sum."""
    for code in code_within(program, node.span.path, node.span.line, node.span.end_line + 3):
        match code:
            case ast.AugAssign(op=ast.Div()):
                return True
            case ast.Attribute(attr=name) if is_kind(name, "no-sum"):
                return True
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if is_kind(name, "division"):
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) if says(name, "world"):
                return True
    return False


def is_norm_used(program: Program, node: Node) -> bool:
    """Whether the lines behind an all_reduce take the root of the sum, divide by it, or hold it against a limit."""
    norm = node.target.text if node.target is not None else ""

    def of_norm(code: ast.expr) -> bool:
        names = [dotted(inner) for inner in every(code) if isinstance(inner, (ast.Name, ast.Attribute))]
        return norm in names if norm else any(says(name, "norm") for name in names)

    for code in code_within(program, node.span.path, node.span.end_line + 1, node.span.end_line + 12):
        match code:
            case ast.BinOp(op=ast.Div(), right=divisor) | ast.AugAssign(op=ast.Div(), value=divisor) if of_norm(divisor):
                return True
            case ast.BinOp(op=ast.Pow(), left=base) if of_norm(base):
                return True
            case ast.Compare(left=left, comparators=others) if of_norm(left) or any(map(of_norm, others)):
                return True
            case ast.Call(func=ast.Attribute(attr="sqrt") | ast.Name(id="sqrt")) if of_norm(code):
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str() as name) if says(name, "limit"):
                return True
    return False
