"""Evaluations over rows that a sampler has padded: the sampler, the collective that puts results together, and what fixes it."""

from __future__ import annotations

import ast

from ddp_audit.tree.nodes import Collective, Iterate, LoaderMade, Program, SamplerMade
from ddp_audit.tree.questions import DISTRIBUTED, by_rank, hints_at, is_kind, samplers_of, says, written
from ddp_audit.tree.values import Obj, constant


def leaves_rows_out(program: Program) -> bool:
    """Whether the code says somewhere that rows are distinguished, or that those beyond the number of rows are dropped."""
    if hints_at(program, "tells-rows-apart") or any(_has_key(one.node.key) for one in written(program, ast.DictComp)):
        return True
    return any(_cuts_to_count(one.node) or _files_by_key(one.node) for one in written(program, ast.Subscript))


def _cuts_to_count(node: ast.Subscript) -> bool:
    """`rows[:len(data)]`, `rows[: self.num_rows]`."""
    match node.slice:
        case ast.Slice(lower=None, upper=ast.Call(func=ast.Name(id="len"))):
            return True
        case ast.Slice(lower=None, upper=ast.Name(id=name) | ast.Attribute(attr=name), step=None):
            return says(name, "number-of-rows")
    return False


def _files_by_key(node: ast.Subscript) -> bool:
    """`results[image_id] = ..`, `results[row["id"]] = ..`, with `int(..)` around the key too."""
    key = node.slice
    if isinstance(key, ast.Call) and isinstance(key.func, ast.Name) and key.func.id == "int" and key.args:
        key = key.args[0]
    if not isinstance(node.ctx, ast.Store):
        return False
    if isinstance(key, ast.Subscript):
        return isinstance(key.slice, ast.Constant) and says(str(key.slice.value), "row-key")
    return isinstance(key, ast.Name) and says(key.id, "row-number")


def _has_key(key: ast.expr) -> bool:
    return isinstance(key, ast.Name) and says(key.id, "row-key", "row-number")


def padding_sampler(program: Program, loader: LoaderMade) -> SamplerMade | None:
    """The node of a loader's DistributedSampler, where it is one that pads."""
    nodes = {n.object.key: n for n in program.of(SamplerMade) if n.object is not None}
    for value in samplers_of(loader):
        node = nodes.get(value.key) if isinstance(value, Obj) and value.cls == DISTRIBUTED else None
        if node is None or by_rank(node.args.get("dataset")) or "**" in node.args:
            continue
        if "drop_last" not in node.args or constant(node.args["drop_last"]) is False:
            return node
    return None


def combined_after(program: Program, iterate: Iterate) -> Collective | None:
    """The collective that puts results of an evaluation together: after its loop, in the functions that run it, or inside it."""
    for node in program.of(Collective):
        if node.number <= iterate.number or not is_kind(node.op, "sums-up", "gathers"):
            continue
        shared = sum(a == b for a, b in zip(node.calls, iterate.calls, strict=False))
        near = shared == len(iterate.calls)
        if shared == len(iterate.calls) - 1:  # in addition to the call of the function with the loop
            near = [*node.calls, node.span][shared].path == iterate.calls[-1].path
        if near and node.loops[: len(iterate.loops)] == iterate.loops and _is_result(node):
            return node
    return None


def _is_result(node: Collective) -> bool:
    """Whether a collective carries what was computed, and not a flag or a gradient."""
    return not says(node.target, "no-result") and not node.hidden
