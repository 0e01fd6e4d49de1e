"""Conditions inside a forward at which ranks part, so that a part of the model is used on some of them only."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddp_audit.patterns import pattern
from ddp_audit.tree.nodes import Guard, Node, Program
from ddp_audit.tree.values import DATA, RANDOM, RANK
from ddp_audit_rules.facts.streams import draws, one_stream

_OF_SHAPE = pattern(r"\.(shape|size|ndim|dim|dtype|device|is_cuda)\b|isinstance|hasattr|is_tensor|jit|onnx|compil")
_EMPTY = pattern(r"(==|!=|>|<|<=|>=)\s*0\b|\b0\s*(==|!=|<|>)|^not\b")


def parting(program: Program, nodes: Sequence[Node]) -> Guard | None:
    """The condition that keeps a part from being used on some ranks; None where it is used on all of them or on none."""
    outer: list[Guard] = []
    for node in nodes:
        differing = [guard for guard in node.guards if _differs(program, guard)]
        if not differing:
            return None
        outer.append(differing[0])
    if not outer or any(g.span == outer[0].span and g.polarity != outer[0].polarity for g in outer):
        return None
    return outer[0]


def _differs(program: Program, guard: Guard) -> bool:
    """Whether ranks can part at a condition inside a forward."""
    taint = guard.taint
    if RANK in taint:
        return True
    if RANDOM in taint or draws(guard.test):
        numpy = re.search(r"\bnp\.|numpy", guard.text)
        torch = draws(guard.test) or "torch." in guard.text
        return not one_stream(program, "torch" if torch else "numpy" if numpy else "random")
    return DATA in taint and (not _OF_SHAPE.search(guard.text) or bool(_EMPTY.search(guard.text)))
