"""Questions on the text of the files read, for what a program's nodes do not keep: the headers that stand around a line."""

from __future__ import annotations

from ddp_audit.findings import Span
from ddp_audit.patterns import pattern
from ddp_audit.program.model import Program

_HEADER = pattern(r"(async\s+)?(if|elif|else|while|for|with|try|except|finally|match|case|def|class)\b")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def headers_around(program: Program, path: str, line: int) -> list[str]:
    """The headers of the blocks that a line stands in, innermost first, up to its function's. For an else or elif, those of
    the arms above it too, since what they ask decides it."""
    lines = program.sources.get(path, [])
    if not 0 < line <= len(lines):
        return []
    depth = _indent(lines[line - 1])
    found: list[str] = []
    for index in range(line - 2, -1, -1):
        text = lines[index].strip()
        if not text or text.startswith("#") or _indent(lines[index]) >= depth or not _HEADER.match(text):
            continue  # also a line of a statement that goes over several
        depth = _indent(lines[index])
        found.append(text)
        if text.startswith(("def ", "class ", "async def ")):
            break
        if text.startswith(("else", "elif")):
            found += _arms_above(lines, index, depth)
    return found


def conditions_around(program: Program, path: str, line: int) -> list[str]:
    """The `if`, `elif` and `while` headers among them."""
    return [text for text in headers_around(program, path, line) if text.startswith(("if", "elif", "while"))]


def function_text(program: Program, path: str, line: int) -> str:
    """The source of the function that a line stands in, by its indentation; of the whole file outside functions."""
    lines = program.sources.get(path, [])
    if not 0 < line <= len(lines):
        return ""
    depth = _indent(lines[line - 1])
    for index in range(line - 1, -1, -1):
        text = lines[index].strip()
        if not text or (_indent(lines[index]) >= depth and index != line - 1):
            continue
        depth = min(depth, _indent(lines[index]))
        if text.startswith(("def ", "async def ")):
            end = next((i for i in range(line, len(lines)) if lines[i].strip() and _indent(lines[i]) <= depth), len(lines))
            return "\n".join(lines[index:end])
    return "\n".join(lines)


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
