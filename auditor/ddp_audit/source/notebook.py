"""Jupyter notebooks: the code of their cells as one text, in the order of the cells."""

from __future__ import annotations

import ast
import bisect
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from ddp_audit.findings import Span
from ddp_audit.lazy_regex import lazy_compile
from ddp_audit.source.paths import CellLine
from ddp_audit.source.problems import SourceError

SUFFIX = ".ipynb"
_CELL_MAGIC = lazy_compile(r"\s*%%(?!time\b|timeit\b|capture\b|prun\b)")
_LINE_END = lazy_compile(r"\r\n|\r|\n")  # as Python's grammar ends lines
_TOKEN = lazy_compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{},:]|[^][{},:"\s]+')  # of JSON that is known to be valid
_LINE_MAGIC = lazy_compile(r"(\s*)[%!?](.*)|(\s*)(\w+\s*=\s*[%!].*)|(\s*)(.*\?)$")


@dataclass(frozen=True, slots=True)
class Notebook:
    """`text` is what a script of all code cells would be; `starts` are the lines in it (from 1) where cells begin, with the cells.

    `cells` are the lines of the code cells as they were written, by number. `skipped` counts the lines that were magics or shell
    commands: each is a comment in the text. `data` are the bytes of the file.
    """

    text: str
    starts: tuple[tuple[int, int], ...]
    cells: Mapping[int, Sequence[str]]
    skipped: int
    data: bytes

    def place(self, line: int) -> tuple[int, int]:
        """The cell (counted from 1 over all cells, as Jupyter shows them) and the line in it of a line of the text."""
        at = bisect.bisect_right(self.starts, line, key=itemgetter(0)) - 1
        if at < 0:
            return 1, line
        start, cell = self.starts[at]
        return cell, line - start + 1

    def span(self, span: Span) -> tuple[int, Span]:
        """Return the cell in which a span of the text begins, and the span with lines of that cell, cut at its end."""
        cell, line = self.place(span.line)
        last_cell, last = self.place(span.end_line)
        column = span.end_column
        if last_cell != cell:
            last = len(self.cells[cell])
            column = len(self.cells[cell][-1]) + 1
        return cell, replace(span, line=line, end_line=last, end_column=column)

    def line(self, line: int) -> CellLine:
        """A line of the text that is written as the line of its cell."""
        return CellLine(line, *self.place(line))

    def joined(self, cell: int, line: int) -> CellLine:
        """Return the line of the text that a line of a cell is."""
        return next((CellLine(start + line - 1, cell, line) for start, number in self.starts if number == cell))

    def joined_span(self, cell: int, span: Span) -> Span:
        """Return a span with lines of a cell as one of the text."""
        return replace(span, line=self.joined(cell, span.line), end_line=self.joined(cell, span.end_line))

    def mark(self, tree: ast.AST) -> None:
        """Lets the lines of a tree of the text be written as lines of their cells."""
        marked: dict[int, CellLine] = {}
        for node in ast.walk(tree):
            for name in ("lineno", "end_lineno"):
                line = getattr(node, name, None)
                if line is not None:
                    if line not in marked:
                        marked[line] = self.line(line)
                    setattr(node, name, marked[line])

    def file_line(self, cell: int, line: int) -> int:
        """The line of the file that holds the text of a line of a cell, or begins it; 1 where that cannot be found."""
        return line_in_file(self.data, cell, line)


def line_in_file(data: bytes, cell: int, line: int) -> int:
    """The line of a notebook's file that holds the start of a line of a cell, both counted from 1; 1 where it cannot be found."""
    text = data.decode(json.detect_encoding(data), errors="replace")
    parts = _source_strings(text).get(cell, [])
    if not parts:
        return 1
    values = [json.loads(literal) for _, literal in parts]
    begins = list(itertools.accumulate(map(len, values), initial=0))  # of each string in the source of the cell
    ends = [0, *(match.end() for match in _LINE_END.finditer("".join(values)))]
    start = ends[min(line, len(ends)) - 1]
    holder = min(bisect.bisect_right(begins, start) - 1, len(parts) - 1)
    return text.count("\n", 0, parts[holder][0]) + 1


def _source_strings(text: str) -> dict[int, list[tuple[int, str]]]:
    """The string literals of the source of each cell, by its number from 1: where each begins in the JSON text, and the literal."""
    found: dict[int, list[tuple[int, str]]] = {}
    way: list[str | int] = []  # the keys and indices that lead to the value at hand; an object waits for its key with ""
    key = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            way.append("" if word == "{" else 1)
        elif word in "}]":
            way.pop()
        elif word == ",":
            last = way[-1]
            way[-1] = last + 1 if isinstance(last, int) else ""
        elif word == ":":
            way[-1] = key
            if way == ["cells"]:
                found.clear()  # the last of several equal keys counts, as for json.loads
            elif way[:1] == ["cells"] and way[2:] == ["source"]:
                found.pop(int(way[1]), None)
        elif way[-1] == "":
            key = json.loads(word)
        elif way[:1] == ["cells"] and way[2:3] == ["source"] and len(way) <= 4:
            found.setdefault(int(way[1]), []).append((token.start(), word))
    return found


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
    written = {}
    skipped = 0
    for number, source in cells:
        starts.append((len(lines) + 1, number))
        written[number] = _LINE_END.split(source)
        kept, passed = _without_magics(written[number])
        lines += kept
        skipped += passed
    return Notebook("\n".join(lines) + "\n", tuple(starts), written, skipped, data)


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
