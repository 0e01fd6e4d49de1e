"""Gradients that a program reduces itself: which collectives carry them, what divides them, and what is before and after."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_audit.findings import Related
from ddp_audit.rule import Context
from ddp_audit.tree.nodes import Backward, Collective, Node, Program, Scale, Step, ZeroGrad
from ddp_audit.tree.questions import (
    attribute_path,
    code_within,
    counts_ranks,
    first_name,
    first_of_each_place,
    forwards_behind,
    group_of,
    is_default,
    is_plain_name,
    reduce_op,
    says,
    switches,
    texts_in,
)
from ddp_audit.tree.values import Bound, Const, Expr, Items, Obj, Unknown, Value
from ddp_audit_rules.facts.training import after, excludes, shares_loop


def is_of_gradients(node: Node) -> bool:
    """Whether a collective carries gradients of parameters."""
    target = node.target
    if target is None or node.function.rpartition(".")[2] == "backward":
        return False
    return _holds_gradients(target) or (says(target, "gradient") and not says(target, "about"))


def _holds_gradients(value: Value, depth: int = 0) -> bool:
    """Whether a value is a gradient, or was made of gradients (concatenated, flattened)."""
    if "grad" in attribute_path(value):
        return True
    made = value.by if isinstance(value, Unknown) and depth < 6 else None
    if made is not None and says(made.name, "about"):
        return False
    parts = value.items if isinstance(value, Items) else made.args if made is not None else ()
    return any(_holds_gradients(part, depth + 1) for part in parts)


def averages_parameters(context: Context, step: Node) -> bool:
    """Whether the program itself sends parameters to all ranks after a step, or in a loop around it, so that none drift for good.

    Where the source does not say what is sent, the predicted run does: as many elements as the wrapped models have. A library that
    sends and is not followed may do it too.
    """
    program = context.program
    later = (node for node in program.of(Collective) if node.number > step.number or shares_loop(node, step))
    if any(_holds_parameters(node.target) for node in later):
        return True
    predicted = context.exploration.predicted()
    return predicted is not None and predicted.may_average_after(step.span.path, step.span.line, step.span.end_line)


def _holds_parameters(value: Value | None, depth: int = 0) -> bool:
    """Whether a value is a parameter, or was made of parameters (detached, concatenated, flattened)."""
    match value:
        case Obj(kind="parameter" | "parameters"):
            return True
        case Bound(receiver=receiver, name="data"):
            return _holds_parameters(receiver, depth + 1)
        case Items(items=items):
            return depth < 6 and any(_holds_parameters(item, depth + 1) for item in items)
        case Unknown(by=made) if made is not None and depth < 6 and not says(made.name, "about"):
            return any(_holds_parameters(arg, depth + 1) for arg in made.args)
    return False


def has_group(node: Collective) -> bool:
    """Whether a collective names a group."""
    group = group_of(node)
    return group is not None and not is_default(group)


def averages(node: Collective) -> bool:
    """Whether the operation is a mean, or is not known to be a sum."""
    return reduce_op(node) != "SUM"


def divisions_of(program: Program, node: Collective, backward: Node) -> list[Scale]:
    """Where the gradients, the loss before its backward or the learning rate are divided by the number of ranks."""
    root, loss = first_name(node.target), first_name(backward.target)
    waits = isinstance(flag := node.args.get("async_op"), Const) and bool(flag.value)
    found = []
    for scale in program.of(Scale):
        if waits and scale.number > node.number and scale.op == "/" and is_plain_name(scale.target):
            found.append(scale)  # where the handles are waited for, each next to its tensor
            continue
        if not counts_ranks(scale.by) and scale.op == "/" and isinstance(scale.by, Const):
            continue
        names = set(texts_in(code_within(program, scale.span.path, scale.span.line, scale.span.line)))
        of_gradient = any(says(name, "gradient") and not says(name, "of-gradients-number") for name in names)
        of_loss = scale.number < backward.number and not names.isdisjoint({"loss", loss})
        same = bool(root) and first_name(scale.target) == root
        is_number = isinstance(scale.target, Const)  # `1 / world_size`, by which something is multiplied then
        if (not is_number and (of_gradient or same or of_loss)) or any(says(name, "learning-rate") for name in names):
            found.append(scale)
    return first_of_each_place(found)


def sure_divisions(divisions: Sequence[Scale], node: Node, backward: Node) -> list[Scale]:
    """Those by the number of ranks itself, and not by what gets smaller with it, next to the reduction or the backward."""
    near = (node.function, backward.function)
    return [d for d in divisions if d.function in near and _power(d.by) * (1 if d.op == "/" else -1) > 0]


def _power(value: Value) -> int:
    """The power in which the number of ranks stands in a value: 1 in `world_size`, -1 in `8 // world_size`, 0 where it does not."""
    if isinstance(value, Expr) and len(value.args) == 2 and value.op in ("*", "/", "//"):
        left, right = map(_power, value.args)
        return left + right if value.op == "*" else left - right
    return int(counts_ranks(value))


def backward_of(program: Program, node: Node) -> Node | None:
    """The last backward before a reduction, in its order or around the loop that both stand in."""
    found = [b for b in program.of(Backward) if (b.number < node.number or shares_loop(b, node)) and not excludes(b, node)]
    return max(found, key=lambda b: (b.number < node.number, b.number)) if found else None


def step_before(program: Program, node: Node) -> Node | None:
    """The step that comes between the backward and the reduction, where the reduction is lost before the next step."""
    steps = [s for s in program.of(Step) if s.number < node.number and shares_loop(s, node) and not excludes(s, node)]
    backwards = [b for b in program.of(Backward) if b.number < node.number and shares_loop(b, node)]
    if not steps or not backwards or backwards[-1].number > steps[-1].number:
        return None
    for later in after(program, node, Step, ZeroGrad, Backward):
        return None if isinstance(later, Step) else steps[-1]
    return None


def synced_wrap(program: Program, backward: Node) -> Related | None:
    """The wrapper that reduces a backward's gradients itself, as a related place."""
    for forward in forwards_behind(program, backward):
        made = forward.object.made if forward.object is not None else None
        if made is not None and not switches(program, forward):
            return Related(made.path, made.line, "wrap", "averages gradients in backward")
    return None
