"""Loops whose number of iterations is not the same on all ranks: what DDP205 reports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddp_audit.knowledge import functions
from ddp_audit.tree.nodes import Jump, LoaderMade, Loop, Node, Program
from ddp_audit.tree.questions import (
    DISTRIBUTED,
    every,
    is_kind,
    limits_by_rank,
    loaders_in,
    local_taint,
    names_in,
    rows,
    says,
    sizing,
    worlds_by_size,
)
from ddp_audit.tree.values import (
    CLOCK,
    DATA,
    FILLED,
    RANK,
    ClassInfo,
    Const,
    Expr,
    Items,
    Made,
    Obj,
    Unknown,
    Value,
    World,
    behind,
    operation_of,
    options,
)
from ddp_audit_rules.collectives._regions import is_together

_SHARDS = ("shard", *functions.named("shards"))


Jobs = list[list[World]]


@dataclass(frozen=True, slots=True, eq=False)
class Uneven:
    """A loop, why ranks go through it a different number of times, and the first thing in it that they do together."""

    loop: Loop
    reason: str
    region: Node
    sure: bool


def uneven_loops(program: Program) -> Iterator[Uneven]:
    """Every such loop once, with what is done together in it."""
    made = {n.object.key: n for n in program.of(LoaderMade) if n.object is not None}
    first: dict[int, tuple[Loop, Node]] = {}
    for node in program.nodes:
        if node.loops and is_together(program, node) and not node.in_join:
            for loop in node.loops:
                first.setdefault(id(loop), (loop, node))
    seen: set[object] = set()
    for loop, region in first.values():
        reason, sure = _why(loop, made, worlds_by_size(program.world_size))
        if reason and loop.span not in seen:
            seen.add(loop.span)
            yield Uneven(loop, reason, region, sure and not _is_capped(program, loop))


def _why(loop: Loop, made: dict[tuple[object, ...], LoaderMade], jobs: Jobs) -> tuple[str, bool]:
    """Why the number of iterations differs, and whether that is known; empty where nothing says so."""
    if loop.kind == "while":
        taint = local_taint(loop.over)
        if CLOCK in taint:
            return "by each rank's own clock", True
        if limits_by_rank(loop.over):
            return "by a limit that differs between ranks", True
        return ("by this rank's own data", True) if DATA in taint else ("", False)
    if says(loop.text, "cuts-iteration") or _has_range(loop.over):
        return "", False
    for loader in loaders_in(loop.over):
        node = made.get(loader.key)
        if node is None or any(_evens_out(value) for value in node.args.values()):
            return "", False
        found = next((why for value in node.args.values() if (why := share_of(value, jobs))[0]), ("", False))
        return found
    by_data = _sized_by_own_data(loop.over)
    if by_data:
        return f"each rank's own data decides how many elements there are: {by_data}", True
    return share_of(loop.over, jobs) if loop.count is None or isinstance(loop.count, (Unknown, Expr)) else ("", False)


def _sized_by_own_data(over: Value, depth: int = 0) -> str:
    """The operation by which local data decide how many elements a value has; empty where nothing says so, or something else.

    A list has as many as the loop that filled it had iterations, where nothing else has filled it too.
    """
    found: set[str] = set()
    for option in options(over) if depth < 9 else ():
        match option:
            case Obj(kind="zip", info=[*parts]):
                found.add(next((by for part in parts if (by := _sized_by_own_data(part, depth + 1))), ""))
            case Obj(kind="enumerate", info=Value() as inner):
                found.add(_sized_by_own_data(inner, depth + 1))
            case Items(keys=None, many=True, count=Unknown(by=Made(name=name, args=(inner,)))) if name == FILLED:
                found.add(_sized_by_own_data(inner, depth + 1))
            case Items(keys=None, many=True, count=None, over=Value() as inner):
                found.add(_sized_by_own_data(inner, depth + 1))
            case Items(keys=None, items=()) | Items(keys=None, many=True, count=Unknown(by=None)):
                pass  # as it was before the loop
            case _:
                sized = sizing(option)
                found.add(sized[0] if sized is not None and DATA in sized[1].taint else "")
    return found.pop() if len(found) == 1 else ""


def _has_range(over: Value) -> bool:
    """Whether a zip has a range among its parts, which ends it on all ranks alike."""
    parts = over.info if isinstance(over, Obj) and over.kind == "zip" else []
    return any(isinstance(part, Obj) and part.kind == "range" and not part.taint for part in parts)


def _evens_out(value: Value) -> bool:
    return any(isinstance(o, Obj) and o.kind == "sampler" and o.cls == DISTRIBUTED for o in options(value))


def _is_capped(program: Program, loop: Loop) -> bool:
    """Whether the loop is left on a condition that is the same on all ranks, perhaps before any of them has come to its end."""
    for jump in program.of(Jump):
        if jump.what in ("break", "return") and loop in jump.loops:
            inner = [g for g in jump.guards if g.loops > jump.loops.index(loop)]
            if inner and not any(g.taint for g in inner):
                return True
    return False


def share_of(value: Value, jobs: Jobs) -> tuple[str, bool]:
    """How a value is a rank's share of unequal length, and whether that is sure; empty where it is none."""
    queue, seen = [value], 0
    while queue and seen < 200:
        for current in behind(queue.pop(0), _is_alike):
            seen += 1
            reason = _share(current, jobs)
            if reason[0]:
                return reason
            if isinstance(current, Items) and current.many and current.over is not None:
                queue.append(current.over)
            if isinstance(current, Obj):
                inner = current.info if isinstance(current.info, list) else [current.info]
                if current.kind in ("dataset", "enumerate", "zip", "range", "plain-sampler", "generator"):
                    queue += [part for part in inner if isinstance(part, Value)]
    return "", False


def _is_alike(value: Value) -> bool:
    """Whether a value is the same on all ranks, whatever it was made of."""
    return not isinstance(value, Obj) and RANK not in value.taint


def _share(value: Value, jobs: Jobs) -> tuple[str, bool]:
    match value:
        case Unknown(by=Made(name="[]", args=(whole, Expr(op="slice", args=(lower, _, step))))) if RANK in lower.taint:
            strided = not (isinstance(step, Const) and step.value in (None, 1))
            return (
                ("every rank takes each world_size-th element from its own on", True)
                if strided and _odd(whole, jobs)
                else ("", False)
            )
        case Unknown(by=Made(name="[]", args=(Unknown(by=Made(name=name, args=given)), index))) if RANK in index.taint and given:
            floor = len(given) > 1 and isinstance(given[1], Expr) and given[1].op == "//"
            split = is_kind(name, "parts-of-data") and not floor and _odd(given[0], jobs)
            return ("every rank takes one part of a division that need not come out even", True) if split else ("", False)
        case Obj(kind="range", cls=(Value() as start, Value() as step)) if RANK in start.taint:
            strided = not (isinstance(step, Const) and step.value == 1) and _odd(_end(value), jobs)
            return ("every rank takes each world_size-th element from its own on", True) if strided else ("", False)
        case Unknown(by=Made(name=name)) if name in _SHARDS and RANK in value.taint:
            return "every rank takes a shard of the data set", True
        case Items(items=(item,), many=True, count=None, over=Value() as over) if (
            RANK in value.taint - over.taint - item.taint and _odd(over, jobs)  # what a condition adds, and not the elements
        ):
            return "every rank keeps the elements that a test of its rank lets through", True
        case Obj(kind="iterable-dataset" | "dataset" | "sampler", cls=ClassInfo() as info):
            code = list(every(info.node))
            if any(map(_takes_by_rank, code)) and not any(map(_may_be_even, code)):
                return f"{info.name} gives every rank each world_size-th element", True
    return "", False


def _takes_by_rank(node: ast.AST) -> bool:
    """Whether some code takes elements by the rank with a stride: `[rank::n]`, `i % world == rank`, `islice(it, rank, None, n)`."""
    match node:
        case ast.Subscript(slice=ast.Slice(lower=ast.expr() as lower, upper=None)):
            return _say(lower, "rank")
        case ast.Compare(left=ast.BinOp(op=ast.Mod(), right=right), ops=[ast.Eq() | ast.NotEq(), *_]):
            return _say(right, "number-of-shards")
        case ast.Call(func=func, args=args) if _say(func, "cuts-iteration"):
            return any(_say(arg, "rank") for arg in args)
    return False


def _may_be_even(node: ast.AST) -> bool:
    match node:
        case ast.While(test=ast.Constant(value=True)) | ast.BinOp(op=ast.FloorDiv()) | ast.Call(func=ast.Name(id="min")):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            return says(name, "evens-out")
        case ast.keyword(arg=str() as name):
            return says(name, "evens-out")
    return False


def _say(node: ast.AST, meaning: str) -> bool:
    return any(says(name, meaning) for name in names_in(node))


def _odd(whole: Value, jobs: Jobs) -> bool:
    """Whether the elements may not come out even; False where their number is known and does, or was made a multiple or padded."""
    if any((isinstance(v, Expr) and v.op in ("*", "%")) or says(operation_of(v), "pads") for v in behind(whole)):
        return False
    counts = [(rows(whole, job[0]), job[0].world_size) for job in jobs]
    return any(count is None or count % size for count, size in counts)


def _end(value: Obj) -> Value:
    """What a range counts to: the sequence whose length it is, or as many elements as the number says."""
    by = value.info.by if isinstance(value.info, Unknown) else None
    stop = by.args[1] if by is not None and len(by.args) > 1 else Unknown()
    if isinstance(stop, Unknown) and stop.by is not None and stop.by.name == "builtins.len":
        return stop.by.args[0]
    return Obj(kind="range", info=stop)
