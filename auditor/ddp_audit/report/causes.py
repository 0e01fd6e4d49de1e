"""What people are shown of an audit: findings by what they cost, one for each cause, and which of them are opened.

A cause that shows at several places is one finding to a person, whatever the number of places: the launches of a README and of a
script that the same number stops, an option and the line that overrides it. Reports for machines keep every place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddp_audit.findings import CONFIDENCES, SEVERITIES, Finding
from ddp_audit.outcome import IN_PART, SEVERAL_STEPS, TO_THE_END, AuditResult
from ddp_audit.report.summary import count


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause: the finding that is shown for it, the gravest and surest, and those at its other places."""

    finding: Finding
    others: list[Finding] = field(default_factory=list)

    @property
    def places(self) -> int:
        """How many places it shows at."""
        return 1 + len(self.others)


_MOST_OF_LINE = 80  # columns: infos take one line


def causes_of(findings: Iterable[Finding]) -> list[Cause]:
    """Return the causes, the gravest first, then by path and line."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.code, finding.cause) if finding.cause else (finding.code, finding.fingerprint, finding.start)
        groups.setdefault(key, []).append(finding)
    found = []
    for group in groups.values():
        first, *others = sorted(group, key=_weight)
        found.append(Cause(first, sorted(others, key=lambda finding: finding.sort_key)))
    return sorted(found, key=lambda cause: (-SEVERITIES.index(cause.finding.severity), cause.finding.sort_key))


def opened(causes: Sequence[Cause], *, with_infos: bool) -> tuple[list[Cause], list[Cause]]:
    """Return the causes that are shown in full, and the infos that only a line counts."""
    shown = [cause for cause in causes if with_infos or cause.finding.severity != "info" or cause.finding.verdict == "confirmed"]
    return shown, [cause for cause in causes if cause not in shown]


def infos_line(folded: Sequence[Cause]) -> str:
    """Return the line that counts folded infos; empty without any."""
    if not folded:
        return ""
    counts = Counter((cause.finding.code, cause.finding.name) for cause in folded)
    rules = sorted(counts)
    head = f"{count(len(folded), 'info')} not shown (--show info): "
    line = head + ", ".join(f"{code} {name}{f' ({counts[code, name]})' * (counts[code, name] > 1)}" for code, name in rules)
    for more in range(len(rules)):
        if len(line) <= _MOST_OF_LINE:
            break
        line = head + _codes(rules[: len(rules) - more], more)
    return line


def _codes(rules: Sequence[tuple[str, str]], more: int) -> str:
    """The codes of rules, and how many `more` there are."""
    return ", ".join(code for code, _ in rules) + (f" and {count(more, 'more rule')}" if more else "")


def counts_line(causes: Sequence[Cause]) -> str:
    """Return the causes of each rule in one line, in the order of the report; empty without any."""
    counts = Counter(cause.finding.code for cause in causes)
    return "By rule: " + ", ".join(f"{code} {number}" for code, number in counts.items()) if counts else ""


def fixable_line(causes: Sequence[Cause]) -> str:
    """Return how many findings --fix can fix; empty if none."""
    counts = Counter(finding.fix.safety for cause in causes for finding in (cause.finding, *cause.others) if finding.fix)
    parts = [f"{counts['safe']} with --fix"] if counts["safe"] else []
    parts += [f"{counts['unsafe']} with --fix --unsafe-fixes"] if counts["unsafe"] else []
    return f"Fixable: {', '.join(parts)} (--diff shows the changes)" if parts else ""


_FOLLOWED = {TO_THE_END: "followed to the end", SEVERAL_STEPS: "followed through several steps", IN_PART: "followed in part"}


def coverage_line(result: AuditResult) -> str:
    """Return how far the audit came, in one line: files, scripts that train, and what was not followed; empty where not known."""
    coverage = result.coverage
    if coverage is None or not result.files:
        return ""
    line = f"Coverage: {count(result.files, 'file')} read"
    if not coverage.scripts:
        return f"{line}, no training found"
    scripts = [script for script in coverage.scripts if script.followed in _FOLLOWED]
    ways = Counter(script.followed for script in scripts)
    if len(scripts) == 1:
        line += f"; {scripts[0].path} {_FOLLOWED[scripts[0].followed]}"
    elif len(ways) == 1:
        line += f"; {len(scripts)} training scripts {_FOLLOWED[scripts[0].followed]}"
    elif scripts:
        line += f"; {len(scripts)} training scripts: {', '.join(f'{ways[way]} {_FOLLOWED[way]}' for way in _FOLLOWED if ways[way])}"
    idle = sum("step" not in script.reached for script in scripts)
    if idle:
        line += "; no optimizer step found" + (f" in {idle} of them" if len(scripts) > 1 else "")
    if len(scripts) < len(coverage.scripts):
        line += f"; {count(len(coverage.scripts) - len(scripts), 'file')} that no script here calls read function by function"
    left = coverage.not_followed
    if not left:
        return line
    return f"{line}; not followed: {left[0]}" + (f", and {count(len(left) - 1, 'more place')}" if len(left) > 1 else "")


def remarks(result: AuditResult) -> list[str]:
    """Return the lines about the audit itself that every report for people ends with."""
    return [line for line in (coverage_line(result), *result.notes) if line]


def looked_at_lines(result: AuditResult) -> list[str]:
    """Return what an audit without findings looked at: the files, and the outcome of each predicted run."""
    files = sorted(result.files_read - {error.path for error in result.errors})
    if not files:
        return []
    named = ", ".join(files[:5]) + (f" and {count(len(files) - 5, 'more file')}" if len(files) > 5 else "")
    lines = [f"Looked at: {named}"]
    for run in (result.predicted or {}).get("runs", []):
        if run["outcome"] != "nothing predicted":
            lines.append(f"Predicted run of {run['path']} on {count(run['world_size'], 'rank')}: {run['outcome']}")
    return lines


def _weight(finding: Finding) -> tuple[object, ...]:
    return (-SEVERITIES.index(finding.severity), -CONFIDENCES.index(finding.confidence), finding.sort_key)
