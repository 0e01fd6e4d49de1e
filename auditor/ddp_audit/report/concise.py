"""One line for each cause, the gravest first, and a last line of counts: for logs, and for a first look at a large project."""

from __future__ import annotations

from ddp_audit.outcome import AuditResult
from ddp_audit.report import causes as by_cause
from ddp_audit.report.causes import Cause
from ddp_audit.report.summary import closing_line, one_line


def render(result: AuditResult, *, with_infos: bool = False, quiet: bool = False) -> str:
    """Return the report. `quiet` leaves out everything but errors and findings."""
    causes = by_cause.causes_of(result.findings)
    shown, folded = by_cause.opened(causes, with_infos=with_infos)
    lines = [f"error: {error}" for error in result.errors]
    lines += [head(cause) for cause in shown]
    if not quiet:
        lines += filter(None, [by_cause.infos_line(folded), *by_cause.remarks(result), closing_line(result, causes)])
    return "".join(f"{one_line(line)}\n" for line in lines)


def head(cause: Cause) -> str:
    """Return the line of one cause: its place, what it is, and how many places it has besides."""
    finding = cause.finding
    more = f" (also at {', '.join(one.place for one in cause.others)})" if cause.others else ""
    verdict = f" [{finding.verdict}]" if finding.verdict else ""
    return f"{finding.start}: {finding.severity} {finding.code} {finding.message}{more}{verdict}"
