"""Plain text for pipes and logs: one line a finding that starts with its place, what it rests on indented below."""

from __future__ import annotations

from ddp_audit.findings import Finding
from ddp_audit.outcome import AuditResult
from ddp_audit.report.causes import remarks
from ddp_audit.report.summary import closing_line, one_line, statistics, sureness


def render(result: AuditResult, *, with_statistics: bool = False) -> str:
    """The whole report, errors of reading included."""
    lines = [f"error: {error}" for error in result.errors]
    for finding in result.findings:
        lines += finding_lines(finding)
    lines += remarks(result)
    if with_statistics:
        lines += statistics(result)
    lines.append(closing_line(result))
    return "".join(f"{one_line(line)}\n" for line in lines)


def _head(finding: Finding) -> str:
    return f"{finding.start}: {finding.code} {finding.severity} {finding.name} [{sureness(finding)}] {finding.message}"


def finding_lines(finding: Finding) -> list[str]:
    """The lines of one finding: its head, then what it rests on and what to do."""
    lines = [_head(finding)]
    lines += [f"    {related.role}: {related.place}: {related.text}" for related in finding.related]
    lines += [f"    {line}" for line in finding.explanation.splitlines() if line.strip()]
    if finding.fix is not None:
        lines.append(f"    Fix: {finding.fix.description}")
    return lines
