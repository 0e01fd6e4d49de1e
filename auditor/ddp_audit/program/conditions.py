"""Conditions that a distributed job settles: what had to hold for its group to be made, and what no rank of it passes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ddp_audit.program import distributed_runs
from ddp_audit.program.values import Const, Unknown, Value, conjuncts, defaults_in, leaves, truth, worlds

if TYPE_CHECKING:
    from ddp_audit.program.lowering import Lowering

_JOBS = (2, 3, 4, 5, 6, 8, 12, 16, 64)  # world sizes in which an assertion has to fail before nothing stands behind it


def operands(node: ast.expr, polarity: bool) -> list[ast.expr]:
    """The operands of a condition as `conjuncts` takes its value apart."""
    match node:
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) == polarity:
            return [part for value in values for part in operands(value, polarity)]
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return operands(inner, not polarity)
    return [node]


def never_holds(lw: Lowering, test: ast.expr, value: Value) -> bool:
    """Whether no rank of a distributed job passes an assertion: it asks for a single process (`assert local_rank == -1`)."""
    for part in operands(test, True):
        if lw.assumption(part) is False or distributed_runs.is_taken(lw, part) is False:
            return True
    jobs = [world for size in _JOBS for world in worlds(size)]
    return any(
        leaves(part) and "?" not in leaves(part) and all(truth(part, world) is (not answer) for world in jobs)
        for part, answer in conjuncts(value, True)
    )


def premised(lw: Lowering, value: Value) -> bool | None:
    """What a condition is where the group could not have been made otherwise: the same was asked on the way there.

    `if torch.cuda.is_available(): init_process_group("nccl")` settles what a later `torch.cuda.is_available()` answers.
    """
    answers = [_asked_before(lw, part, wanted) for part, wanted in conjuncts(value, True)]
    if False in answers:
        return False
    return True if all(answers) else None


def _asked_before(lw: Lowering, value: Value, wanted: bool) -> bool | None:
    """Whether a part of a condition comes out as wanted; None where nothing like it was asked."""
    if isinstance(value, Const) and value.default is None:
        return bool(value.value) == wanted
    if not isinstance(value, Unknown) or value.by is None:
        return None
    for premise, answer in lw.premises:
        if isinstance(premise, Unknown) and premise == value and premise.by == value.by:
            return answer == wanted
    return None


def is_impossible(lw: Lowering, value: Value, answer: bool) -> bool:
    """Whether no rank of a job answers a condition so, whatever its options are: `local_rank == -1 and args.often`."""
    return any(
        all(truth(part, world) is (not wanted) for world in lw.worlds) and not any(default.open for default in defaults_in(part))
        for part, wanted in conjuncts(value, answer)
    )
