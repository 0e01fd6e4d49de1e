"""Jupyter notebooks: the code of their cells as one text, in the order of the cells."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ddp_audit.patterns import pattern
from ddp_audit.source.problems import SourceError

SUFFIX = ".ipynb"
_CELL_MAGIC = pattern(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)")
_LINE_MAGIC = pattern(r"(\s*)[%!?](.*)|(\s*)(\w+\s*=\s*[%!].*)|(\s*)(.*\?)$")


@dataclass(frozen=True, slots=True)
class Notebook:
    """`text` is what a script of all code cells would be; `starts` are the lines in it (from 1) where cells begin, with the cells.

    `skipped` counts the lines that were magics or shell commands: each is a comment in the text.
    """

    text: str
    starts: tuple[tuple[int, int], ...]
    skipped: int

    def place(self, line: int) -> tuple[int, int]:
        """The cell (counted from 1 over all cells, as Jupyter shows them) and the line in it of a line of the text."""
        number, first = 1, 1
        for start, cell in self.starts:
            if start > line:
                break
            number, first = cell, start
        return number, line - first + 1


def read_notebook(data: bytes, shown: str) -> Notebook:
    """The notebook in a file's bytes. Raises SourceError where it is none, or not one of Python."""
    try:
        document = json.loads(data)
        language = _language(document)
        cells = [(number, _source(cell)) for number, cell in enumerate(document["cells"], 1) if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(shown, None, "is not a Jupyter notebook of format 4") from None
    if language != "python":
        raise SourceError(shown, None, f"is a notebook in {language}, not in Python")
    lines: list[str] = []
    starts = []
    skipped = 0
    for number, source in cells:
        starts.append((len(lines) + 1, number))
        kept, passed = _without_magics(source.split("\n"))
        lines += kept
        skipped += passed
    return Notebook("\n".join(lines) + "\n", tuple(starts), skipped)


def _language(document: Any) -> str:
    metadata = document.get("metadata", {})
    return str(metadata.get("language_info", metadata.get("kernelspec", {})).get("name", "python")).lower().rstrip("0123456789")


def _source(cell: Any) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def _without_magics(lines: list[str]) -> tuple[list[str], int]:
    """The lines of a cell with its magics as comments, and how many those are. A cell of another language is comments alone."""
    first = next((line for line in lines if line.strip()), "")
    if _CELL_MAGIC.match(first):
        return [f"# {line}" for line in lines], sum(bool(line.strip()) for line in lines)
    kept, skipped = [], 0
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        magic = _LINE_MAGIC.fullmatch(line) is not None and not line.lstrip().startswith("#") and not _closes(line)
        kept.append(f"{indent}pass  # {line.strip()}" if magic else line)
        skipped += magic
    return kept, skipped


def _closes(line: str) -> bool:
    """Whether a line that looks like a magic goes on with an expression: `% size)`, or ends a text with a question mark."""
    stripped = line.strip()
    return stripped.startswith("% ") or (stripped.endswith("?") and any(mark in stripped for mark in "\"'# "))
