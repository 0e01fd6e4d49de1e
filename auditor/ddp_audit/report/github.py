"""Annotations of GitHub Actions: workflow commands on standard output, and a table for the summary of the job."""

from __future__ import annotations

from ddp_audit.findings import SEVERITIES, Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.report.summary import closing_line, one_line, sureness
from ddp_audit.source.problems import SourceError

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}
_MOST_ROWS = 1000  # GitHub takes a summary of up to 1 MiB


def render(result: AuditResult) -> str:
    """One command a line, the gravest findings first: GitHub shows the first ten of each kind in a step.

    Newlines inside a message are escaped as GitHub reads them.
    """
    lines = [_error(error) for error in result.errors]
    lines += [_finding(finding, result) for finding in _gravest_first(result)]
    lines += [f"::notice title=ddp-audit::{_data(note)}" for note in result.notes]
    return "".join(line + "\n" for line in lines)


def summary(result: AuditResult) -> str:
    """Markdown for the file that GITHUB_STEP_SUMMARY names: every finding in a row, since GitHub shows few annotations."""
    lines = ["### ddp-audit", "", _cell(closing_line(result)), ""]
    rows = [f"| error | | {_cell(error.place)} | {_cell(error.message)} |" for error in result.errors]
    rows += [
        f"| {finding.severity} | {finding.code} {finding.name} | {_cell(finding.start)} | {_cell(finding.message)} |"
        for finding in _gravest_first(result)
    ]
    if rows:
        lines += ["| severity | rule | place | message |", "|---|---|---|---|", *rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines += ["", f"{len(rows) - _MOST_ROWS} more rows are left out."]
    return "\n".join(lines) + "\n\n"


def _gravest_first(result: AuditResult) -> list[Finding]:
    return sorted(result.findings, key=lambda finding: -SEVERITIES.index(finding.severity))


def _error(error: SourceError) -> str:
    place = f"file={_property(error.path)}" + ("" if error.file_line is None else f",line={error.file_line}")
    where = "" if error.cell is None else f" ({error.place})"
    return f"::error {place},title=ddp-audit::{_data(error.message + where)}"


def _finding(finding: Finding, result: AuditResult) -> str:
    span = finding.span
    first, last = (result.file_line(span.path, finding.cell, line) for line in (span.line, span.end_line))
    place = f"file={_property(span.path)},line={first},endLine={max(first, last)}"
    if span.line == span.end_line and finding.cell is None:  # columns are only taken within one line
        place += f",col={span.column},endColumn={span.end_column}"
    parts = [f"{finding.message} [{sureness(finding)}]"]
    if finding.cell is not None:
        parts.append(f"place: {finding.start}")
    parts += [f"{related.role}: {related.place}: {related.text}" for related in finding.related]
    if finding.explanation:
        parts.append(finding.explanation)
    if finding.fix is not None:
        parts.append(f"Fix: {finding.fix.description}")
    title = _property(f"{finding.code} {finding.name}")
    return f"::{_COMMANDS[finding.severity]} {place},title={title}::{_data(chr(10).join(parts))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _cell(text: str) -> str:
    """A text as a cell of a Markdown table: nothing in it is markup or ends the row."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|#" else letter for letter in text)
