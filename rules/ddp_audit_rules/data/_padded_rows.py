"""Evaluations over rows that a sampler has padded: the sampler, the collective that puts results together, and what mends it."""

from __future__ import annotations

import re

from ddp_audit.tree.nodes import Collective, Iterate, LoaderMade, Program, SamplerMade
from ddp_audit.tree.questions import DISTRIBUTED, by_rank, has_line, samplers_of
from ddp_audit.tree.values import Obj, constant

_REDUCES = ("all_reduce", "reduce", "all_reduce_coalesced")
GATHERS = ("all_gather", "gather", "all_gather_object", "gather_object", "all_gather_into_tensor", "all_gather_single")
_MENDED = (
    r"gather_for_metrics|dedup|duplicate|unique|Unrepeated|\[\s*:\s*len\(|\[\s*:\s*[\w.]*(num|total|size|len)\w*\]|total_size|"
    r"\{\s*(\w*id\w*|\w*ind(ex|ices)?\w*|idx|key)\s*:.*\bfor\b|remove_padding|"
    r"\w\[\s*(int\()?(\w+\[[\"'](\w*_)?(id|ids|idx|uid|guid|index)[\"']\]|(image|sample|example|question|row|item)_?id)\)?\s*\]\s*=[^=]"
)


def leaves_rows_out(program: Program) -> bool:
    """Whether the code says somewhere that rows are told apart, or that those beyond the number of rows are dropped."""
    return has_line(program, _MENDED)


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
        if node.number <= iterate.number or node.op not in (*_REDUCES, *GATHERS):
            continue
        shared = sum(a == b for a, b in zip(node.calls, iterate.calls, strict=False))
        near = shared == len(iterate.calls)
        if shared == len(iterate.calls) - 1:  # beside the call of the function with the loop
            near = [*node.calls, node.span][shared].path == iterate.calls[-1].path
        if near and node.loops[: len(iterate.loops)] == iterate.loops and _is_result(node):
            return node
    return None


def _is_result(node: Collective) -> bool:
    """Whether a collective carries what was computed, and not a flag or a gradient."""
    text = node.target.text if node.target is not None else ""
    return not re.search(r"grad|stop|flag|seed|weight|param|buffer", text) and not node.hidden
