"""Logging commands of Azure Pipelines, which become the issues of a run. Infos are left out: Azure knows errors and warnings."""

from __future__ import annotations

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.report.causes import causes_of
from ddp_audit.report.summary import count


def render(result: AuditResult) -> str:
    """Return one command a line, the gravest first."""
    lines = [_command("error", e.path, e.file_line, None, "", f"could not be audited: {e.message}") for e in result.errors]
    causes = causes_of(result.findings)
    lines += [_finding(cause.finding, result) for cause in causes if cause.finding.severity != "info"]
    infos = sum(cause.finding.severity == "info" for cause in causes)
    if infos:
        lines.append(f"ddp-audit: {count(infos, 'info')} left out (--format full --show info shows them)")
    return "".join(line + "\n" for line in lines)


def _finding(finding: Finding, result: AuditResult) -> str:
    line = result.file_line(finding.span.path, finding.cell, finding.span.line)
    column = finding.span.column if finding.cell is None else None
    text = finding.message if finding.fix is None else f"{finding.message} Fix: {finding.fix.description}"
    return _command(finding.severity, finding.span.path, line, column, finding.code, text)


def _command(kind: str, path: str, line: int | None, column: int | None, code: str, text: str) -> str:
    properties = [("type", kind), ("sourcepath", path), ("linenumber", line), ("columnnumber", column), ("code", code)]
    shown = ";".join(f"{key}={_property(str(value))}" for key, value in properties if value not in (None, ""))
    return f"##vso[task.logissue {shown};]{_data(text)}"


def _data(text: str) -> str:
    text = text.replace("%", "%AZP25").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _property(text: str) -> str:
    return _data(text).replace(";", "%3B").replace("]", "%5D")
