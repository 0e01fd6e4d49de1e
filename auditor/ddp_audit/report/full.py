"""The report for people: the gravest findings first, each with its line of source, the way that leads there and what to do.

A finding says in one sentence what happens. Why it does, and when it does not, stands on the page of its rule, to which the code
is a link; `--verbose` prints it here. Infos are counted in one line until `--show info` opens them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Console
from rich.style import Style
from rich.text import Text

from ddp_audit.findings import Finding, Related, Span
from ddp_audit.outcome import AuditResult
from ddp_audit.report import causes as by_cause
from ddp_audit.report.causes import Cause
from ddp_audit.report.columns import cut, pad, width_of
from ddp_audit.report.console import console_for
from ddp_audit.report.pages import page_of, page_url, suppression_pages
from ddp_audit.report.steps import in_order_of_flow, what_of
from ddp_audit.report.summary import closing_line, count, one_line, statistics, sureness

STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold cyan"}
_VERDICTS = {"confirmed": "bold red", "not-observed": "green", "not-exercised": "dim", "not-covered": "dim"}
_MOST_LINES = 4  # of one excerpt
_MOST_STEPS = 8
_MOST_PLACES = 8
_LEAST_STEP = 30  # columns behind the place of a step
_LEAST_SOURCE = 12  # columns of a line of source that are worth showing behind what a step says
_MARGIN = "       | "


def show(
    result: AuditResult,
    stream: IO[str],
    *,
    with_statistics: bool = False,
    with_infos: bool = False,
    verbose: bool = False,
    width: int | None = None,
) -> None:
    """Print the report. `with_infos` opens infos; `verbose` does too, and adds what each finding explains."""
    console = console_for(stream, width)
    for error in result.errors:
        _print(console, Text.assemble(("error:", STYLES["error"]), " ", one_line(str(error))), 0)
    if result.errors:
        console.print()
    causes = by_cause.causes_of(result.findings)
    shown, folded = by_cause.opened(causes, with_infos=with_infos or verbose)
    for cause in shown:
        _cause(console, cause, result, verbose)
    for line in closing(result, causes, folded):
        _print(console, Text(one_line(line)), 0)
    if with_statistics:
        for line in statistics(result):
            console.print(Text(line))
    _print(console, Text(closing_line(result, causes), "bold"), 0)


def closing(result: AuditResult, causes: Sequence[Cause], folded: Sequence[Cause]) -> Iterator[str]:
    """Yield the lines between the findings and the last line: what is folded, counts, fixes, coverage, notes, more help."""
    lines = [by_cause.infos_line(folded)]
    if len(causes) > 1:
        lines.append(by_cause.counts_line(causes))
    lines.append(by_cause.fixable_line(causes))
    if not causes:
        lines += by_cause.looked_at_lines(result)
    else:
        lines.append(f"More about a rule: ddp-audit explain {causes[0].finding.code}")
    yield from filter(None, (*lines, *by_cause.remarks(result)))


def _cause(console: Console, cause: Cause, result: AuditResult, verbose: bool) -> None:
    finding = cause.finding
    style = STYLES[finding.severity]
    link = _link(finding.code, result) if console.color_system else ""
    head = Text.assemble(
        (one_line(finding.start), "bold"),
        "  ",
        (finding.severity, style),
        " ",
        (finding.code, Style.parse(style) + Style(link=link) if link else style),
        f" {finding.name} ",
        (f"[{sureness(finding)}]", _VERDICTS.get(finding.verdict or "", "dim")),
    )
    _print(console, head, 0)
    _print(console, Text(one_line(finding.message)))
    lines = result.lines_of(finding.span.path, finding.cell)
    _excerpt(console, finding.span, lines, style)
    _steps(console, finding, result)
    named = {step.place for step in finding.related}
    places = [one_line(one.place) for one in cause.others if one.place not in named]
    if places:
        more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
        _print(console, Text(f"also at {', '.join(places[:_MOST_PLACES])}{more}"))
    if verbose and finding.explanation:
        for paragraph in filter(str.strip, finding.explanation.splitlines()):
            _print(console, Text(one_line(paragraph.strip()), "dim"))
    if finding.fix is not None:
        how = {"safe": " (--fix)", "unsafe": " (--fix --unsafe-fixes)"}.get(finding.fix.safety, "")
        _print(console, Text.assemble(("Fix: ", "bold green"), one_line(finding.fix.description), (how, "dim")))
    console.print()


def _link(code: str, result: AuditResult) -> str:
    """The address of the rule's page; empty for a rule of a project's own."""
    if code in result.rules:
        return page_of(result.rules[code]).url
    return page_url(code) if any(page.code == code for page in suppression_pages()) else ""


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


def _steps(console: Console, finding: Finding, result: AuditResult) -> None:
    """The places that the finding rests on, numbered in the order of the flow."""
    own = (finding.span.path, finding.span.line, finding.cell)
    steps = [step for step in in_order_of_flow(finding.related) if (step.path, step.line, step.cell) != own]
    places = [one_line(step.place if step.line > 0 else step.path) for step in steps[:_MOST_STEPS]]
    widest = max(map(width_of, places), default=0)
    hang = widest + 5
    is_wide = console.width - hang >= _LEAST_STEP
    for number, (step, place) in enumerate(zip(steps, places, strict=False), 1):
        if is_wide:
            head = Text.assemble(f"  {number} ", (pad(place, widest), "bold"), " ")
            said = _said(step, result, console.width - hang).wrap(console, console.width - hang)
            for line in said:
                line.rstrip()
                console.print(head + line, no_wrap=True)
                head = Text(" " * hang)
        else:
            console.print(Text.assemble(f"  {number} ", (place, "bold")))
            _print(console, _said(step, result, console.width - 4), 4)
    if len(steps) > _MOST_STEPS:
        console.print(Text(f"  and {count(len(steps) - _MOST_STEPS, 'more place')}", "dim"))


def _print(console: Console, text: Text, indent: int = 2) -> None:
    """Print a text indented, without blanks at the ends of its lines."""
    for line in text.wrap(console, max(20, console.width - indent)):
        line.rstrip()
        console.print(Text(" " * indent) + line, no_wrap=True)


def _said(step: Related, result: AuditResult, room: int) -> Text:
    """What a step is, and behind it the line of source where that has room."""
    lines = result.lines_of(step.path, step.cell)
    source = one_line(lines[step.line - 1].replace("\t", " ").strip()) if 0 < step.line <= len(lines) else ""
    said = one_line(what_of(step, source))
    left = room - width_of(said) - 2
    if not source or left < min(_LEAST_SOURCE, width_of(source)):
        return Text(said)
    return Text.assemble(said, (f": {cut(source, left)}", "dim"))


def _source_line(number: int, text: str, width: int) -> Text:
    return Text.assemble((f"{number:>6} | ", "dim"), cut(one_line(text), max(20, width - len(_MARGIN))))
