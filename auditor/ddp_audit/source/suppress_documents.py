"""Suppression comments in documents (README, shell and batch scripts, Makefiles, manifests), in the comment syntax of each.

`# ddp-audit: ignore[DDP504]` in shell, YAML, make and in the code blocks of a text, `<!-- .. -->` in Markdown,
`.. ddp-audit: ..` in reStructuredText, `// ..` in JSON. A comment at the end of a line holds for the command that the line is a
part of (lines that a backslash joins). Alone on a line it holds for what follows: a command; in YAML the key with all that is
below it; after a comment of Markdown or reStructuredText the whole code block or paragraph, as formatters part the two by a
blank line.
"""

from __future__ import annotations

from ddp_audit.findings import Span
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source.suppress import MARK, Suppression, suppression_of

_COMMENT = lazy_compile(
    r"(?:^|(?<=\s))(?P<opening>#+|<!--|//|\.\.)\s*ddp-audit:\s*(?P<verb>ignore-file|ignore)\b(?P<codes>\s*\[(?P<list>[^\]]*)\])?"
)
_FENCE = lazy_compile(r"\s*(```+|~~~+)")
_YAML = (".yaml", ".yml")


def document_suppressions(text: str, path: str) -> list[Suppression]:
    """The suppression comments of a document, in order."""
    if MARK not in text:
        return []
    lines = text.split("\n")
    found = []
    for index, line in enumerate(lines):
        match = _COMMENT.search(line)
        if match is None:
            continue
        held = _command(lines, index) if line[: match.start()].strip(" \t-") else _below(lines, index, match["opening"], path)
        span = Span(path, index + 1, match.start() + 1, index + 1, match.end() + 1)
        comment = suppression_of(match, span, range(held.start + 1, held.stop + 1), line.strip())
        comment.at_end = True
        found.append(comment)
    return found


# Ranges of lines, counted from 0


def _below(lines: list[str], index: int, opening: str, path: str) -> range:
    """The lines that a comment alone on its line holds for."""
    start = index + 1
    in_text = opening in ("<!--", "..")
    while start < len(lines) and (_COMMENT.match(lines[start].strip()) or (in_text and not lines[start].strip())):
        start += 1
    if start == len(lines) or not lines[start].strip():
        return range(0)
    if not in_text:
        return _node(lines, start) if path.endswith(_YAML) else _command(lines, start)
    fence = _FENCE.match(lines[start])
    if fence is not None:
        ends = (i for i in range(start + 1, len(lines)) if lines[i].strip().startswith(fence[1]))
        return range(start, next(ends, len(lines) - 1) + 1)
    if lines[start].lstrip().startswith(".. "):
        return _node(lines, start)
    stop = start
    while stop < len(lines) and lines[stop].strip():
        stop += 1
    return range(start, stop)


def _command(lines: list[str], index: int) -> range:
    """The lines that backslashes join to one."""
    start = stop = index
    while start > 0 and lines[start - 1].rstrip().endswith("\\"):
        start -= 1
    while stop < len(lines) - 1 and lines[stop].rstrip().endswith("\\"):
        stop += 1
    return range(start, stop + 1)


def _node(lines: list[str], index: int) -> range:
    """A line with the lines below it that are indented more; of a key of YAML the items of its list too."""
    indent = _indent(lines[index])
    is_key = lines[index].rstrip().endswith(":")
    stop, last = index + 1, index
    while stop < len(lines):
        line = lines[stop]
        inside = _indent(line) > indent or (is_key and _indent(line) == indent and line.lstrip().startswith("- "))
        if line.strip():
            if not inside:
                break
            last = stop
        stop += 1
    return range(index, last + 1)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
