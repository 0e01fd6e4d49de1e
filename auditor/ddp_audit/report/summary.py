"""Sentences that several reports share: the closing line, and counts a rule."""

from __future__ import annotations

from collections import Counter

from ddp_audit.findings import SEVERITIES, Finding
from ddp_audit.outcome import AuditResult

_CONTROLS = {number: repr(chr(number))[1:-1] for number in (*range(32), *range(127, 160)) if chr(number) != "\t"}


def closing_line(result: AuditResult) -> str:
    """`2 errors, 1 warning and 3 infos in 7 files; 1 suppressed; 1 file could not be audited.`, or that nothing was audited."""
    failed = len({error.path for error in result.errors})
    if not result.files and not result.findings:
        why = f"{count(failed, 'path')} could not be read or parsed" if failed else "every path is excluded"
        return f"No file was audited: {why}."
    counts = Counter(finding.severity for finding in result.findings)
    parts = [count(counts[severity], severity) for severity in reversed(SEVERITIES) if counts[severity]]
    found = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) if parts else "No hazards found"
    if not parts and result.known:
        found = "No new hazards found"
    line = f"{found} in {count(result.files, 'file')}"
    if result.suppressed:
        line += f"; {result.suppressed} suppressed"
    if failed:
        line += f"; {count(failed, 'file')} could not be audited"
    return line + "."


def one_line(text: str) -> str:
    """A text in which control characters are written as escapes: a name of a file may hold line ends, and orders for a terminal."""
    return text.translate(_CONTROLS)


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
