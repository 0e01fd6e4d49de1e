"""Conditions inside a forward at which ranks diverge, so that a part of the model is used on some of them only."""

from __future__ import annotations

from collections.abc import Sequence

from ddp_audit.tree.nodes import Guard, Node, Program
from ddp_audit.tree.questions import asks_for_none, asks_form, made_by_chance, one_stream
from ddp_audit.tree.values import DATA, RANDOM, RANK, behind, operation_of


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
    if RANDOM in taint or made_by_chance(guard.test):
        libraries = {operation_of(value).partition(".")[0] for value in behind(guard.test)}
        torch = made_by_chance(guard.test) or "torch" in libraries
        return not one_stream(program, "torch" if torch else "numpy" if "numpy" in libraries else "random")
    return DATA in taint and (not asks_form(guard.test) or asks_for_none(guard.test))
