"""Whether a statement runs in every job, as its text says: options that the auditor takes for granted may be set otherwise."""

from __future__ import annotations

import re

from ddp_audit.findings import Span
from ddp_audit.program.model import Node, Program
from ddp_audit.program.source import headers_around

_ASKS = ("if", "elif", "else", "while", "for", "try", "except", "match", "case")


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


def _conditions(program: Program, span: Span) -> list[str]:
    """The headers around a place that may keep it from running, innermost first; `if __name__ == ..` does not count."""
    headers = headers_around(program, span.path, span.line)
    return [text for text in headers if re.split(r"[\s:]", text)[0] in _ASKS and "__name__" not in text]


def _left_before(program: Program, span: Span) -> bool:
    """Whether a return stands in the same function before a place."""
    lines = program.sources.get(span.path, [])
    depth = len(lines[span.line - 1]) - len(lines[span.line - 1].lstrip()) if 0 < span.line <= len(lines) else 0
    for line in reversed(lines[: span.line - 1]):
        text = line.strip()
        if text and len(line) - len(line.lstrip()) < depth and text.startswith(("def ", "async def ")):
            return False
        if re.match(r"return\b", text):
            return depth > 0
    return False
