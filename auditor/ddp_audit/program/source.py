"""Questions on the text of the files read, for what a program's nodes do not keep: the headers that stand around a line."""

from __future__ import annotations

import re

from ddp_audit.findings import Span
from ddp_audit.program.model import Program

_HEADER = re.compile(r"(if|elif|while|else\b|with|for|try|except|def|class)\b")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def conditions_around(program: Program, path: str, line: int) -> list[str]:
    """The `if`, `elif` and `while` headers that a line stands under in its function, innermost first."""
    lines = program.sources.get(path, [])
    if not 0 < line <= len(lines):
        return []
    depth = _indent(lines[line - 1])
    found: list[str] = []
    for text in reversed(lines[: line - 1]):
        if not text.strip() or text.lstrip().startswith("#") or _indent(text) >= depth:
            continue
        header = text.strip()
        if header.startswith(("def ", "class ", "async def ")):
            break
        if not _HEADER.match(header):
            continue  # a line of a statement that goes over several
        depth = _indent(text)
        if header.startswith(("else", "elif")):
            # What the arms above it ask decides this one, too.
            found += _arms_above(lines, lines.index(text), depth)
        if header.startswith(("if", "elif", "while")):
            found.append(header)
    return found


def _arms_above(lines: list[str], index: int, depth: int) -> list[str]:
    """Headers of the arms before an else or elif of one indentation, up to its `if`."""
    found: list[str] = []
    for text in reversed(lines[:index]):
        if not text.strip() or _indent(text) > depth:
            continue
        if _indent(text) < depth:
            break
        found.append(text.strip())
        if text.strip().startswith("if"):
            break
    return [header for header in found if header.startswith(("if", "elif"))]


def with_its_condition(program: Program, span: Span) -> Span:
    """The span widened to the `if` around it where the statement is all that the `if` holds."""
    lines = program.sources.get(span.path, [])
    if not 1 < span.line <= len(lines):
        return span
    header, statement = lines[span.line - 2], lines[span.line - 1]
    after = next((text for text in lines[span.end_line :] if text.strip()), "")
    if not header.strip().startswith("if ") or not header.split("#")[0].rstrip().endswith(":"):
        return span
    alone = _indent(header) < _indent(statement) and (not after or _indent(after) <= _indent(header))
    if not alone or after.strip().startswith(("else", "elif")):
        return span
    return Span(span.path, span.line - 1, _indent(header) + 1, span.end_line, span.end_column)
