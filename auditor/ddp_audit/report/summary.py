"""Sentences that several reports share: the closing line, and counts a rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddp_audit.findings import SEVERITIES, Finding
from ddp_audit.outcome import AuditResult

if TYPE_CHECKING:
    from ddp_audit.report.causes import Cause

# Control characters, and those that turn the direction of a text or end a line somewhere: a name or a line of source with them can
# give orders to a terminal, or read other than it is.
_ORDERS = (*range(32), *range(127, 160), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {number: repr(chr(number))[1:-1] for number in _ORDERS if chr(number) != "\t"}
_COMMANDS = ("::", "##[")  # begin a line that GitHub's runner takes for a command


def closing_line(result: AuditResult, causes: Sequence[Cause] | None = None) -> str:
    """`2 errors, 1 warning and 3 infos in 7 files; 1 suppressed; 1 file could not be audited.`, or that nothing was audited.

    With `causes` these are counted, and their places behind them.
    """
    failures = {error.path for error in result.errors if not error.is_audited}
    failed = len(failures)
    if not result.files and not result.findings:
        why = f"{count(failed, 'path')} could not be read or parsed" if failed else "every path is excluded"
        return f"No file was audited: {why}."
    audited = result.files_read - (failures - {finding.span.path for finding in result.findings})
    if not audited and not result.findings:
        return f"No file was audited: {count(failed, 'file')} could not be audited."
    shown = result.findings if causes is None else [cause.finding for cause in causes]
    counts = Counter(finding.severity for finding in shown)
    parts = [count(counts[severity], severity) for severity in reversed(SEVERITIES) if counts[severity]]
    found = " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:]))) if parts else "No hazards found"
    if len(shown) < len(result.findings):
        found += f" at {len(result.findings)} places"
    if not parts and result.known:
        found = "No new hazards found"
    line = f"{found} in {count(len(audited), 'file')}"
    if result.suppressed:
        line += f"; {result.suppressed} suppressed"
    if failed:
        line += f"; {count(failed, 'file')} could not be audited"
    return line + "."


def one_line(text: str) -> str:
    """A text in which control characters are written as escapes: a name of a file may hold line ends, and orders for a terminal.

    Where it begins as a command of GitHub's runner does, as a path can, `./` stands before it.
    """
    shown = text.translate(_CONTROLS)
    return f"./{shown}" if shown.lstrip().startswith(_COMMANDS) else shown


def lines_of(text: str) -> str:
    """A text of several lines, each as `one_line` writes it."""
    return "\n".join(map(one_line, text.split("\n")))


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
