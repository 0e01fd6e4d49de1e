"""The values and calls of a project's own helpers, as its settings tell of them (source/project_hints.py)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program import contracts
from ddp_audit.program.operations import operation
from ddp_audit.program.values import (
    Const,
    Value,
    leaf,
)
from ddp_audit.source.project_hints import kind_of

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering


def hinted_value(lw: Lowering, node: ast.expr) -> Value | None:
    """The value of a name or attribute that the settings say holds a rank, a world size or a main-process flag."""
    match kind_of(lw.hints, node):
        case "rank" | "local-rank" | "world-size" as kind:
            return leaf(kind.replace("-", "_"))
        case "main-process":
            return operation("==", leaf("rank"), Const(value=0), text=lw.text(node))
    return None


def hinted_call(lw: Lowering, node: ast.Call, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The value of a call of a helper, after its effects; None without a hint about it."""
    kind = kind_of(lw.hints, node)
    if kind == "wrap":
        return contracts.wrap(lw, node, args, kwargs, "ddp")
    if kind == "barrier":
        return lw.contracts.names["torch.distributed.barrier"](lw, node, [], {})
    return hinted_value(lw, node) if kind else None
