"""Annotations of GitHub Actions: workflow commands on standard output, and a table for the summary of the job.

GitHub shows ten annotations of a kind in a step: one cause gets one, and infos get none. The summary has them all.
"""

from __future__ import annotations

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.report.causes import Cause, causes_of, remarks
from ddp_audit.report.markdown import escaped
from ddp_audit.report.summary import closing_line, count, sureness
from ddp_audit.source.problems import SourceError

_MOST_ROWS = 1000  # GitHub takes a summary of up to 1 MiB


def render(result: AuditResult) -> str:
    """Return one command a line, the gravest findings first. Newlines inside a message are escaped as GitHub reads them."""
    causes = causes_of(result.findings)
    lines = [_error(error) for error in result.errors]
    lines += [_finding(cause, result) for cause in causes if cause.finding.severity != "info"]
    infos = sum(cause.finding.severity == "info" for cause in causes)
    if infos:
        lines.append(f"ddp-audit: {count(infos, 'info')} not annotated (the summary of the job has them)")
    lines += [f"::notice title=ddp-audit::{_data(note)}" for note in result.notes]
    return "".join(line + "\n" for line in lines)


def summary(result: AuditResult) -> str:
    """Return Markdown for the file that GITHUB_STEP_SUMMARY names: every cause in a row, with its other places."""
    causes = causes_of(result.findings)
    lines = ["### ddp-audit", "", escaped(closing_line(result, causes)), ""]
    rows = [f"| error | | {escaped(error.place)} | {escaped(error.message)} |" for error in result.errors]
    for cause in causes:
        finding = cause.finding
        places = ", ".join(escaped(place) for place in (finding.start, *(one.place for one in cause.others)))
        rows.append(f"| {finding.severity} | {finding.code} {finding.name} | {places} | {escaped(finding.message)} |")
    if rows:
        lines += ["| severity | rule | place | message |", "|---|---|---|---|", *rows[:_MOST_ROWS]]
    if len(rows) > _MOST_ROWS:
        lines += ["", f"{len(rows) - _MOST_ROWS} more rows are left out."]
    lines += ["", *(f"{escaped(line)}  " for line in remarks(result))]
    return "\n".join(lines) + "\n\n"


def _error(error: SourceError) -> str:
    place = f"file={_property(error.path)}" + ("" if error.file_line is None else f",line={error.file_line}")
    where = "" if error.cell is None else f" ({error.place})"
    return f"::error {place},title=ddp-audit::{_data(error.message + where)}"


def _finding(cause: Cause, result: AuditResult) -> str:
    finding: Finding = cause.finding
    span = finding.span
    first, last = (result.file_line(span.path, finding.cell, line) for line in (span.line, span.end_line))
    place = f"file={_property(span.path)},line={first},endLine={max(first, last)}"
    if span.line == span.end_line and finding.cell is None:  # columns are only taken within one line
        place += f",col={span.column},endColumn={span.end_column}"
    parts = [f"{finding.message} [{sureness(finding)}]"]
    if finding.cell is not None:
        parts.append(f"place: {finding.start}")
    parts += [f"{related.role}: {related.place}: {related.text}" for related in finding.related]
    if cause.others:
        parts.append(f"also at {', '.join(one.place for one in cause.others)}")
    if finding.explanation:
        parts.append(finding.explanation)
    if finding.fix is not None:
        parts.append(f"Fix: {finding.fix.description}")
    title = _property(f"{finding.code} {finding.name}")
    return f"::{finding.severity} {place},title={title}::{_data(chr(10).join(parts))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
