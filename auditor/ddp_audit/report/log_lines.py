"""The known texts of a log for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ddp_audit.compare.explain import rank_list
from ddp_audit.compare.logs import LogNote
from ddp_audit.report.columns import cut, wrap

_WIDTH = 80


def lines(notes: Sequence[LogNote], together: Sequence[str], width: int = _WIDTH) -> Iterator[str]:
    """Each text once, with its meaning, and then what texts and diff say together."""
    yield "What the log says"
    for note in notes:
        who = f", {rank_list(note.ranks)}" if note.ranks else ""
        times = f", {note.count:,} times" if note.count > 1 else ""
        yield cut(f"  {note.kind}: {_short(note.path, 40)}:{note.line}{who}{times}", width)
        yield cut(f"      {note.text}", width)
        yield from _wrapped(note.meaning, width)
    for sentence in together:
        yield from _wrapped(sentence, width, "  ")


def as_objects(notes: Sequence[LogNote]) -> list[dict[str, Any]]:
    """The key `log` of the JSON of `diff` and `trace`."""
    return [
        {
            "kind": note.kind,
            "path": note.path,
            "line": note.line,
            "ranks": note.ranks,
            "count": note.count,
            "text": note.text,
            "meaning": note.meaning,
        }
        for note in notes
    ]


def _wrapped(text: str, width: int, indent: str = "    ") -> list[str]:
    return wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def _short(path: str, width: int) -> str:
    while len(path) > width and "/" in path.removeprefix("../"):
        path = "../" + path.removeprefix("../").split("/", 1)[1]
    return path
