"""Data sets that were cut by rank before anything else divides them."""

from __future__ import annotations

import ast

from ddp_audit.knowledge import functions
from ddp_audit.tree.questions import by_rank, dotted, every, is_kind
from ddp_audit.tree.values import ClassInfo, Expr, Items, Made, Obj, Unknown, Value, World, behind, evaluate, options


def cut_by_rank(data: Value, kinds: tuple[str, ...] = ("dataset", "iterable-dataset")) -> str:
    """How a data set was cut by rank, in words; empty where it was not, or takes the rank for something else."""
    for option in options(data):
        if isinstance(option, Obj) and option.kind in kinds:
            if isinstance(option.cls, ClassInfo):
                strides = by_rank(option) and any(map(_is_own_stride, every(option.cls.node)))
                if strides:
                    return f"{option.cls.name} keeps every W-th item"
            for part in option.info or ():
                found = _cut_value(part) if isinstance(part, Value) else ""
                if found:
                    return found
        elif not isinstance(option, Obj):
            found = _cut_value(option)
            if found:
                return found
    return ""


def _cut_value(value: Value) -> str:
    for inner in behind(value):
        match inner:
            case Obj(kind="range", text=text) if by_rank(inner):
                return f"`{text}`"
            case Obj(kind="dataset"):
                found = cut_by_rank(inner)
                if found:
                    return found
            case Unknown(by=Made(name="[]", args=(_, index))) if _is_stride(index):
                return f"`{inner.text}`"
            case Unknown(by=Made(name=name, args=args, named=named)) if is_kind(name, "takes-share") or name in functions.named(
                "shards"
            ):
                if any(by_rank(v) for v in (*args[1:], *(v for _, v in named))):
                    return f"`{inner.text or name}`"
            case Items(over=Value() as over):
                found = _cut_value(over)
                if found:
                    return found
    return ""


def _is_own_stride(node: ast.AST) -> bool:
    """`[self.rank::n]`."""
    cut = node.slice if isinstance(node, ast.Subscript) else None
    return isinstance(cut, ast.Slice) and cut.lower is not None and dotted(cut.lower) == "self.rank" and cut.upper is None


def _is_stride(index: Value) -> bool:
    """`[rank::world_size]`."""
    if not (isinstance(index, Expr) and index.op == "slice" and len(index.args) == 3):
        return False
    return all(evaluate(index.args[0], World(r, 4, 2)) == r for r in (0, 3)) and evaluate(index.args[2], World(1, 4, 2)) == 4
