"""Sentences that several reports share: the closing line, and counts a rule."""

from __future__ import annotations

from collections import Counter

from ddp_audit.findings import SEVERITIES, Finding
from ddp_audit.outcome import AuditResult


def closing_line(result: AuditResult) -> str:
    """`2 errors, 1 warning and 3 infos in 7 files; 1 suppressed; 1 file could not be audited.`"""
    counts = Counter(finding.severity for finding in result.findings)
    parts = [count(counts[severity], severity) for severity in reversed(SEVERITIES) if counts[severity]]
    found = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) if parts else "No hazards found"
    if not parts and result.known:
        found = "No new hazards found"
    line = f"{found} in {count(result.files, 'file')}"
    if result.suppressed:
        line += f"; {result.suppressed} suppressed"
    if result.errors:
        line += f"; {count(len(result.errors), 'error')} kept the audit from being whole"
    return line + "."


def one_line(text: str) -> str:
    """A text in which line ends, as names of files may hold them, are written as escapes."""
    return text.replace("\n", "\\n").replace("\r", "\\r")


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def statistics(result: AuditResult) -> list[str]:
    """A line for each rule that reported something, the most frequent first."""
    counts = Counter((finding.code, finding.name) for finding in result.findings)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [f"{number:>5}  {code}  {name}" for (code, name), number in ordered]


def sureness(finding: Finding) -> str:
    """`likely`, or with a trace `likely, confirmed`."""
    return finding.confidence if finding.verdict is None else f"{finding.confidence}, {finding.verdict}"
