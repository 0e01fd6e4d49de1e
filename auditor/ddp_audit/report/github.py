"""Annotations of GitHub Actions: workflow commands on standard output."""

from __future__ import annotations

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.report.summary import sureness

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def render(result: AuditResult) -> str:
    """One command a line; newlines inside a message are escaped as GitHub reads them."""
    lines = [_error(error.path, error.line, error.message) for error in result.errors]
    lines += [_finding(finding) for finding in result.findings]
    lines += [f"::notice title=ddp-audit::{_data(note)}" for note in result.notes]
    return "".join(line + "\n" for line in lines)


def _error(path: str, line: int | None, message: str) -> str:
    place = f"file={_property(path)}" + ("" if line is None else f",line={line}")
    return f"::error {place},title=ddp-audit::{_data(message)}"


def _finding(finding: Finding) -> str:
    span = finding.span
    place = f"file={_property(span.path)},line={span.line},endLine={span.end_line}"
    if span.line == span.end_line:  # columns are only taken within one line
        place += f",col={span.column},endColumn={span.end_column}"
    parts = [f"{finding.message} [{sureness(finding)}]"]
    parts += [f"{related.role}: {related.path}:{related.line}: {related.text}" for related in finding.related]
    if finding.explanation:
        parts.append(finding.explanation)
    if finding.fix is not None:
        parts.append(f"To mend it: {finding.fix.description}")
    title = _property(f"{finding.code} {finding.name}")
    return f"::{_COMMANDS[finding.severity]} {place},title={title}::{_data(chr(10).join(parts))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
