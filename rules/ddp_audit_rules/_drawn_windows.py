"""Indices of training windows that are drawn from a whole set, the seed of their stream, and other draws from it."""

from __future__ import annotations

import re

from ddp_audit.patterns import pattern
from ddp_audit.program.loading import by_rank
from ddp_audit.program.model import Node, Program
from ddp_audit.program.source import function_text
from ddp_audit.program.values import MISSING
from ddp_audit_rules._streams import seed_of_all, seeds_of

_SET = pattern(r"len\(\s*([\w.]+)\s*\)|([\w.]+)\.shape\[0\]")
_WHOLE = ("randperm", "permutation")  # an order of the set, not windows of it


def is_window(program: Program, node: Node) -> bool:
    """Whether a draw takes indices of a whole set that the same function then reads: no permutation, no part that differs by rank.

    Weighted draws are importance sampling, and indices of something that is not read are random input.
    """
    if node.detail["what"].rsplit(".", 1)[-1] in _WHOLE or "p" in node.args:
        return False
    if any(by_rank(value) for value in node.args.values()):
        return False
    whole = _SET.search(node.text)
    if whole is None:
        return True
    name = re.escape(next(group for group in whole.groups() if group))
    return bool(re.search(rf"(?<![\w.]){name}\s*\[", function_text(program, node.span.path, node.span.line)))


def seed_before(program: Program, node: Node) -> tuple[Node | None, bool]:
    """The last seed that all ranks set before a draw in the same library, and whether it is equal on all of them."""
    seeds = [n for n in seeds_of(program, node.detail["library"]) if n.number < node.number and not n.rank_guards]
    if not seeds:
        return None, False
    return seeds[-1], seed_of_all(seeds[-1]) is not MISSING


def entered(others: list[Node]) -> list[str]:
    """Where the paths to further draws leave the common one: the innermost call before the draw, each once."""
    places = [(n.calls[-1] if n.calls else n.span) for n in others]
    return list(dict.fromkeys(f"{place.path}:{place.line}" for place in places))[:3]
