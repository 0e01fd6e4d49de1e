"""Whether a statement runs in every job, as its text says: options that the auditor takes for granted may be set otherwise."""

from __future__ import annotations

import ast

from ddp_audit.findings import Span
from ddp_audit.program.code import Arm, arms_around, every, function_at, names_in
from ddp_audit.program.model import Program
from ddp_audit.program.nodes import Node


def always_runs(program: Program, node: Node) -> bool:
    """Whether no condition, loop or try stands around a node and the calls that lead to it, and no way out of a function before."""
    return all(_always(program, span) for span in (*node.calls, node.span))


def runs_with(program: Program, node: Node, other: Node) -> bool:
    """Whether what stands around a node stands around another one of the same function too, which comes after it."""
    if (node.span.path, node.function, node.calls) != (other.span.path, other.function, other.calls):
        return False
    around, its = _conditions(program, node.span), _conditions(program, other.span)
    return node.number <= other.number and its[len(its) - len(around) :] == around


def _always(program: Program, span: Span) -> bool:
    return not _conditions(program, span) and not _left_before(program, span)


def _conditions(program: Program, span: Span) -> list[Arm]:
    """The arms around a place that may keep it from running, innermost first; `if __name__ == ..` does not count."""
    return [arm for arm in arms_around(program, span.path, span.line) if _may_skip(arm)]


def _may_skip(arm: Arm) -> bool:
    if isinstance(arm.statement, ast.If):
        return arm.part != "body" or "__name__" not in names_in(arm.statement.test)
    return not isinstance(arm.statement, (ast.With, ast.AsyncWith)) and arm.part != "finalbody"


def _left_before(program: Program, span: Span) -> bool:
    """Whether a return stands in the same function before a place."""
    function = function_at(program, span.path, span.line)
    return function is not None and any(isinstance(node, ast.Return) and node.lineno < span.line for node in every(function))
