"""The lowering of expressions: their kinds, operators, displays, comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddp_audit.program import async_ops, class_questions, guard_functions, names
from ddp_audit.program.calls import call
from ddp_audit.program.changes import counts_ranks, joined_parameters, note_scale
from ddp_audit.program.described import described_value
from ddp_audit.program.helpers import hinted_value
from ddp_audit.program.iteration import iterate, subscript
from ddp_audit.program.lists import innermost_loop, listed, says_of_number
from ddp_audit.program.lookup import attribute, name
from ddp_audit.program.model import Branch, Guard, Item, Loop
from ddp_audit.program.nodes import FloorDivision
from ddp_audit.program.operations import bounded, decided_by, operation
from ddp_audit.program.shown import show
from ddp_audit.program.state import FunctionInfo, Yielded, merge_value
from ddp_audit.program.truths import asked
from ddp_audit.program.values import (
    CLOCK,
    DATA,
    RANDOM,
    UNIFORM,
    Const,
    Expr,
    Ext,
    Func,
    Items,
    Made,
    Obj,
    Taint,
    Unknown,
    Value,
    is_filled,
    join_deps,
    join_taint,
    options,
    the_object,
)

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def _constant(lw: Lowering, node: ast.Constant) -> Value:
    return Const(value=node.value)


def _attribute(lw: Lowering, node: ast.Attribute) -> Value:
    return attribute(lw, lw.eval(node.value), node.attr, node)


def _hinted_name(lw: Lowering, node: ast.Name) -> Value:
    hinted = hinted_value(lw, node)
    return described_value(lw, node, name(lw, node)) if hinted is None else hinted


def _hinted_attribute(lw: Lowering, node: ast.Attribute) -> Value:
    hinted = hinted_value(lw, node)
    return described_value(lw, node, _attribute(lw, node)) if hinted is None else hinted


def _operator(lw: Lowering, node: ast.BinOp) -> Value:
    async_ops.touch(lw, node.left, node)
    async_ops.touch(lw, node.right, node)
    return _binary(lw, node, lw.eval(node.left), names.OPERATORS.get(type(node.op), "?"), lw.eval(node.right))


def _sign(lw: Lowering, node: ast.UnaryOp) -> Value:
    async_ops.touch(lw, node.operand, node)
    value = lw.eval(node.operand)
    if isinstance(node.op, ast.Not):
        value = asked(lw, value, node.operand)
    return operation(names.OPERATORS.get(type(node.op), "?"), value, text=lw.text(node))


def _comparison(lw: Lowering, node: ast.Compare) -> Value:
    if not any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
        for operand in (node.left, *node.comparators):
            async_ops.touch(lw, operand, node)
    return _compare(lw, node, lw.eval(node.left), node.ops, [lw.eval(c) for c in node.comparators])


def _display(lw: Lowering, node: ast.Tuple | ast.List | ast.Set) -> Value:
    if len(node.elts) == 1 and isinstance(node.elts[0], ast.Starred):
        whole = lw.eval(node.elts[0].value)
        if isinstance(whole, Obj):  # `[*range(4)]`: what a loop over it gives, is what a loop over the other gives
            return whole
    values: list[Value] = []
    spread: list[Value] = []  # of a number of elements that is not known
    for part in node.elts:
        value = lw.eval(part.value if isinstance(part, ast.Starred) else part)
        if not isinstance(part, ast.Starred):
            values.append(value)
        elif isinstance(value, Items) and value.keys is None and not value.many and not value.filled:
            values += value.items
        else:
            values.append(value)
            spread.append(value)
    kind, taint, deps = type(node).__name__.lower(), join_taint(*values), join_deps(*values)
    many = 0 < len(spread) == len(values)
    filled = bool(spread) and (not many or any(map(is_filled, spread)))
    made = Items(items=tuple(values), kind=kind, taint=taint, deps=deps, many=many, filled=filled, within=innermost_loop(lw))
    return bounded(made)


def _format(lw: Lowering, node: ast.JoinedStr) -> Value:
    pieces = tuple(lw.eval(p.value) if isinstance(p, ast.FormattedValue) else lw.eval(p) for p in node.values)
    show(lw, node, pieces)
    return bounded(Expr(op="format", args=pieces, taint=join_taint(*pieces), text=lw.text(node)))


def _named(lw: Lowering, node: ast.NamedExpr) -> Value:
    assigned = lw.eval(node.value)
    lw.assign(node.target, assigned)
    return assigned


def _yield_from(lw: Lowering, node: ast.YieldFrom) -> Value:
    result = lw.eval(node.value)
    if the_object(result, "loader") is not None:
        iterate(lw, node.value, result)
    _yielded(lw, result, whole=True)
    return result


def _yield(lw: Lowering, node: ast.Yield) -> Value:
    _yielded(lw, lw.eval(node.value))
    return Unknown()


def _slice(lw: Lowering, node: ast.Slice) -> Value:
    bounds = tuple(lw.eval(b) for b in (node.lower, node.upper, node.step))
    return bounded(Expr(op="slice", args=bounds, taint=join_taint(*bounds), text=lw.text(node)))


def _binary(lw: Lowering, node: ast.BinOp, left: Value, op: str, right: Value) -> Value:
    if op == "//":
        lw.emit(node, FloorDivision(left=left, right=right, name=""))
    if op == "+" and isinstance(left, Items) and isinstance(right, Items) and left.keys is None:
        return bounded(replace(left, items=left.items + right.items, taint=left.taint | right.taint))
    if op == "%" and isinstance(left, Const) and isinstance(left.value, str):
        show(lw, node, right.items if isinstance(right, Items) else (right,))
    if op in ("/", "*") and counts_ranks(right):
        note_scale(lw, node, left, op, right)
    joined = joined_parameters(left, right) if op == "+" else None
    if joined is not None:
        return joined
    return operation(op, left, right, text=lw.text(node))


_SAME = {"is": True, "==": True, "is not": False, "!=": False}


def _compare(lw: Lowering, node: ast.Compare, left: Value, ops: list[ast.cmpop], right: list[Value]) -> Value:
    parts: list[Value] = []
    for op, other in zip(ops, right, strict=True):
        sign = names.OPERATORS[type(op)]
        parts.append(_one_compare(left, sign, other, lw.text(node)))
        left = other
    return parts[0] if len(parts) == 1 else operation("and", *parts, text=lw.text(node))


def _one_compare(left: Value, sign: str, right: Value, text: str) -> Value:
    if sign in ("in", "not in") and isinstance(right, Ext) and right.name == "os.environ" and isinstance(left, Const):
        if left.value in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            return Const(value=sign == "in", text=text)
        return Unknown(text=text)
    if sign in ("==", "!=") and isinstance(right, Const) and guard_functions.is_rank_function(left):
        return Const(value=sign == "!=", text=text)  # a function object is not a number
    if (
        isinstance(right, Const)
        and right.value is None
        and sign in _SAME
        and all(isinstance(o, (Obj, Items)) for o in options(left))
    ):
        return Const(value=not _SAME[sign], text=text)  # an object that was made is there
    alike = class_questions.compared(left, sign, right)
    if alike is not None:
        return Const(value=alike, text=text)
    if isinstance(right, Items) and right.keys is not None and sign in ("in", "not in"):
        right = Items(items=right.keys, taint=right.taint)
    said = says_of_number(left, sign, right)
    if said is not None:
        return Const(value=said, text=text)
    result = operation(sign, _number(left, right), _number(right, left), text=text)
    if sign in ("is", "is not") and isinstance(right, Const) and right.value is None:
        # Whether there is a value is no matter of what is in it, but of what decided that there is one.
        return replace(result, taint=(result.taint - {DATA, CLOCK, RANDOM}) | decided_by(left))
    return result


def _number(value: Value, other: Value) -> Value:
    """A digit string that is compared with a number of the environment counts as that number."""
    if _is_text(other):
        return value
    if isinstance(value, Const) and isinstance(value.value, str) and isinstance(other, Expr) and value.value.lstrip("-").isdigit():
        return replace(value, value=int(value.value))
    return value


def _is_text(value: Value) -> bool:
    """Whether an expression makes a text: `str(rank)`, `"%d" % rank`, `f"{rank}"`."""
    if isinstance(value, Const):
        return isinstance(value.value, str)
    return isinstance(value, Expr) and (value.op in ("format", "str") or (value.op in ("%", "+") and _is_text(value.args[0])))


def _yielded(lw: Lowering, value: Value, whole: bool = False) -> None:
    """Notes a yield of the running function; of every element of `value` where it is a `yield from`."""
    frame = lw.here
    loops = lw.loops[frame.loop_base :]
    loop = loops[-1] if loops else None
    if whole:
        loop = Loop(frame.source.span(frame.source.tree.body[0]), "for", value, value.text)
    frame.returns.append(((), value))
    guards, blocks = tuple(lw.guards[frame.guard_base :]), tuple(lw.no_sync[frame.no_sync_base :])
    frame.yields.append(Yielded(value, guards, blocks, lw.grad, loop))


def _looks_further(node: ast.expr) -> bool:
    return any(isinstance(inner, (ast.Call, ast.Attribute)) for inner in ast.walk(node))


def _logic(lw: Lowering, node: ast.BoolOp) -> Value:
    """`a and b()`: what comes after the first operand runs only where those before it have not decided."""
    op, parts = names.OPERATORS[type(node.op)], node.values
    values = [lw.eval(parts[0])]
    for part in parts[1:]:
        if not lw.here.source.fact("looks further", part, _looks_further):
            values.append(lw.eval(part))
            continue
        before = values[0] if len(values) == 1 else operation(op, *values)
        outer, lw.block = lw.block, []
        # The text of the guard is that of the operands before this one, which stand first in the source of the node.
        guard = replace(lw.guard(before, op == "and", parts[len(values) - 1], "ifexp"), against_default=False)
        lw.guards.append(guard)
        values.append(lw.eval(part))
        lw.guards.pop()
        inner_block, lw.block = lw.block, outer
        if inner_block and not lw.muted:
            then: list[Item] = inner_block if op == "and" else []
            orelse: list[Item] = [] if op == "and" else inner_block
            lw.block.append(Branch(replace(guard, polarity=True), then, orelse))
    chosen = _chosen(op, values)
    return operation(op, *values, text=lw.text(node)) if chosen is None else chosen


def _chosen(op: str, values: Sequence[Value]) -> Value | None:
    """The operand that `and` or `or` gives, where what stands before it is an object, or a constant that nobody overrides."""
    for value in values[:-1]:
        if isinstance(value, (Obj, Func, Ext)):
            holds = True
        elif isinstance(value, Const) and value.default is None:
            holds = bool(value.value)
        else:
            return None
        if holds == (op == "or"):
            return value
    return values[-1]


def _conditional(lw: Lowering, node: ast.IfExp) -> Value:
    guard_functions.check(lw, node.test, [])
    test = asked(lw, lw.eval(node.test), node.test)
    settled = lw.settled(node.test, test, [ast.Expr(node.body)], [ast.Expr(node.orelse)])
    if settled is not None:
        return lw.eval(node.body if settled else node.orelse)
    outer, values = lw.block, []
    blocks: list[list[Item]] = []
    guards: list[Guard] = []
    for part, polarity in ((node.body, True), (node.orelse, False)):
        lw.block = []
        guards.append(lw.guard(test, polarity, node.test, "ifexp"))
        lw.guards.append(guards[-1])
        values.append(lw.eval(part))
        lw.guards.pop()
        blocks.append(lw.block)
    lw.block = outer
    if not lw.muted and any(blocks):
        lw.block.append(Branch(guards[0], blocks[0], blocks[1]))
    if any(g.against_default for g in guards) and any(isinstance(v, Obj) for v in values) and values[0] != values[1]:
        return values[1] if guards[0].against_default else values[0]  # as the defaults have it
    return merge_value(test, values[0], values[1])


def _dict(lw: Lowering, node: ast.Dict) -> Value:
    keys, values = node.keys, [lw.eval(v) for v in node.values]
    found_keys: list[Value] = []
    found_values: list[Value] = []
    spread = False  # of keys that are not known
    for key, value in zip(keys, values, strict=True):
        if key is None:
            if isinstance(value, Items) and value.keys is not None:
                found_keys += value.keys
                found_values += value.items
                spread |= value.many or value.filled
            else:
                spread = True
        else:
            found_keys.append(lw.eval(key))
            found_values.append(value)
    taint, deps = join_taint(*values), join_deps(*values)
    words = [key.value if isinstance(key, Const) and isinstance(key.value, str) else place for place, key in enumerate(found_keys)]
    kept = {word: place for place, word in enumerate(words)}.values()  # the last one under each key
    found_keys, found_values = [found_keys[place] for place in kept], [found_values[place] for place in kept]
    if spread and not found_values:
        return Unknown(taint=taint, deps=deps, by=Made("builtins.dict", tuple(values)))
    return bounded(Items(items=tuple(found_values), keys=tuple(found_keys), kind="dict", taint=taint, deps=deps, filled=spread))


def _comprehension(lw: Lowering, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
    taint: Taint = UNIFORM
    count: Value | None = None
    over: Value = Unknown()
    for generator in node.generators:
        over = lw.eval(generator.iter)
        element, passes, _ = iterate(lw, generator.iter, over)
        count = passes if len(node.generators) == 1 and not generator.ifs else None
        lw.assign(generator.target, element)
        taint |= over.taint
        for condition in generator.ifs:
            taint |= lw.eval(condition).taint
    if isinstance(node, ast.DictComp):
        key = lw.eval(node.key)
        value = lw.eval(node.value)
        if isinstance(value, Obj):  # wrappers, loaders and their like by name: any name gives one of the kind
            taints = taint | value.taint
            return Items(items=(value,), keys=(key,), kind="dict", many=True, taint=taints, deps=value.deps, count=count, over=over)
        return Unknown(taint=taint | value.taint, deps=value.deps, by=Made("builtins.dict", (over, value)))
    value = lw.eval(node.elt)
    kind = "set" if isinstance(node, ast.SetComp) else "list"
    made = Items(items=(value,), kind=kind, taint=taint | value.taint, deps=value.deps, many=True, count=count, over=over)
    return listed(lw, made, over, count)


# The value of each kind of expression; nodes that it brings are emitted on the way. What is not here is unknown.
KINDS: dict[type, Callable[[Lowering, Any], Value]] = {
    ast.Constant: _constant, ast.Name: name, ast.Attribute: _attribute, ast.Call: call, ast.BinOp: _operator, ast.BoolOp: _logic,
    ast.UnaryOp: _sign, ast.Compare: _comparison, ast.IfExp: _conditional, ast.Dict: _dict, ast.JoinedStr: _format,
    **dict.fromkeys((ast.Tuple, ast.List, ast.Set), _display),
    ast.Subscript: lambda lw, node: subscript(lw, node, lw.eval(node.value), lw.eval(node.slice)),
    ast.Lambda: lambda lw, node: Func(definition=FunctionInfo("<lambda>", node, lw.here)),
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp), _comprehension),
    ast.NamedExpr: _named, ast.YieldFrom: _yield_from, ast.Yield: _yield, ast.Slice: _slice,
    **dict.fromkeys((ast.Starred, ast.Await), lambda lw, node: lw.eval(node.value)),
}  # fmt: skip
HINTED = KINDS | {ast.Name: _hinted_name, ast.Attribute: _hinted_attribute}  # where the settings tell of helpers by their names
