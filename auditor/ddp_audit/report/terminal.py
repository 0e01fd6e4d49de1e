"""The report for people at a terminal: source excerpts, the lines a finding rests on with their roles, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import IO

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.outcome import AuditResult
from ddp_audit.report.columns import cut, width_of
from ddp_audit.report.summary import closing_line, one_line, statistics, sureness

_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_VERDICTS = {"confirmed": "bold red", "not-observed": "green", "not-exercised": "dim", "not-covered": "dim"}
_MOST_LINES = 6  # of one excerpt
_MARGIN = "       | "


def show(result: AuditResult, stream: IO[str], *, with_statistics: bool = False, width: int | None = None) -> None:
    """Prints the report. Colours only where the stream is a terminal and NO_COLOR is not set."""
    console = Console(file=stream, width=width, highlight=False, emoji=False, markup=False, soft_wrap=False)
    for error in result.errors:
        console.print(Text.assemble(("error", _STYLES["error"]), " ", one_line(str(error))))
    if result.errors:
        console.print()
    for finding in result.findings:
        _finding(console, finding, result)
    for note in result.notes:
        console.print(Text(one_line(note)))
    if with_statistics:
        for line in statistics(result):
            console.print(Text(line))
    console.print(Text(closing_line(result), "bold"))


def _finding(console: Console, finding: Finding, result: AuditResult) -> None:
    style = _STYLES[finding.severity]
    head = Text.assemble(
        (one_line(finding.start), "bold"),
        "  ",
        (f"{finding.severity} {finding.code}", style),
        f" {finding.name} ",
        (f"[{sureness(finding)}]", _VERDICTS.get(finding.verdict or "", "dim")),
    )
    console.print(head)
    console.print(Padding(Text(one_line(finding.message)), (0, 0, 0, 2)))
    lines = result.lines_of(finding.span.path, finding.cell)
    if lines or finding.related:
        console.print()
    _excerpt(console, finding.span, lines, style)
    _related(console, finding.related, result)
    if finding.explanation:
        console.print()
        for paragraph in finding.explanation.splitlines():
            if paragraph.strip():
                console.print(Padding(Text(one_line(paragraph.strip())), (0, 0, 0, 2)))
    if finding.fix is not None:
        console.print()
        safety = "" if finding.fix.safety == "display-only" else f" ({finding.fix.safety} fix)"
        console.print(Padding(Text.assemble(("Fix: ", "bold green"), one_line(finding.fix.description), safety), (0, 0, 0, 2)))
    console.print()


def _excerpt(console: Console, span: Span, lines: Sequence[str], style: str) -> None:
    last = min(span.end_line, span.line + _MOST_LINES - 1, len(lines))
    room = max(20, console.width - len(_MARGIN) - 1)
    for number in range(span.line, last + 1):
        text = lines[number - 1].replace("\t", " ")
        console.print(_source_line(number, text, console.width), no_wrap=True)
        if number == span.line:
            end = span.end_column if span.end_line == span.line else len(text) + 1
            before, marked = text[: span.column - 1], text[span.column - 1 : end - 1]
            marks = " " * width_of(one_line(before)) + "^" * max(1, width_of(one_line(marked)))
            console.print(Text.assemble((_MARGIN, "dim"), (marks[:room], style)), no_wrap=True)
    if 0 < last < span.end_line:
        console.print(Text(f"{_MARGIN}.. to line {span.end_line}", "dim"))


def _related(console: Console, related: list[Related], result: AuditResult) -> None:
    for (path, cell), group in groupby(related, key=lambda place: (place.path, place.cell)):
        console.print(Text(f"  {one_line(path)}" + ("" if cell is None else f":cell {cell}"), "dim"))
        lines = result.lines_of(path, cell)
        for place in group:
            text = lines[place.line - 1].replace("\t", " ").strip() if 0 < place.line <= len(lines) else ""
            if text:
                console.print(_source_line(place.line, text, console.width), no_wrap=True)
            said = place.role if place.text in ("", text) or place.text in text else f"{place.role}: {place.text}"
            where = "" if text or place.line < 1 else f"line {place.line}: "  # a file that cannot be read any more
            console.print(Padding(Text(one_line(f"{where}{said}"), "italic"), (0, 0, 0, len(_MARGIN) + 2)))


def _source_line(number: int, text: str, width: int) -> Text:
    return Text.assemble((f"{number:>6} | ", "dim"), cut(one_line(text), max(20, width - len(_MARGIN))))
