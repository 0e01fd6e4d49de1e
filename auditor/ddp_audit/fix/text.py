"""Texts and the edits on them: the lines that a codemod changed, several edits in one text, line ends, unified diffs."""

from __future__ import annotations

import difflib
import io
import re
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass

from ddp_audit.lazy_regex import lazy_compile

_LINE = lazy_compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines `start` (from 0) up to `end`, not included, replaced by others. Lines keep their `\\n`."""

    start: int
    end: int
    lines: tuple[str, ...]

    def overlaps(self, other: Edit) -> bool:
        """Whether two edits change a line in common, or insert at one place."""
        return self.start <= other.end and other.start <= self.end


def edit_between(before: str, after: str) -> Edit | None:
    """The one stretch of lines in which two texts differ; None where they are equal."""
    old, new = _lines(before), _lines(after)
    if old == new:
        return None
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return Edit(start, len(old) - end, tuple(new[start : len(new) - end]))


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The text after edits that do not overlap."""
    lines = _lines(text)
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        lines[edit.start : edit.end] = edit.lines
    return "".join(lines)


def as_bytes(text: str, original: bytes) -> bytes:
    """A text with `\\n` line ends as bytes, in the encoding and with the line ends of the file that it was read from.

    Lines that the file holds already keep their own ends; new ones get the end of its first line.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(original).readline)
    old = _LINE.findall(original.decode(encoding))
    ends = [line[len(line.rstrip("\r\n")) :] for line in old]
    new = _lines(text)
    usual = ends[0] if ends and ends[0] else "\n"
    if set(ends) - {"\n", ""}:
        plain = [line.rstrip("\r\n") + ("\n" if end else "") for line, end in zip(old, ends, strict=True)]
        matched = difflib.SequenceMatcher(None, plain, new, autojunk=False).get_opcodes()
        changed: list[str] = []
        for tag, old_start, old_end, start, end in matched:
            changed += old[old_start:old_end] if tag == "equal" else [line.replace("\n", usual) for line in new[start:end]]
        new = changed
    return "".join(new).encode(encoding)


def unified_diff(path: str, before: str, after: str) -> str:
    """The change of one file as a unified diff with three lines of context; empty without one."""
    found = difflib.unified_diff(_lines(before), _lines(after), path, path)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
