"""The verdict of a recorded run on each finding of an audit.

A rule's `verify` answers by what the run recorded: confirmed, not-observed, or not-exercised where nothing recorded can tell. Only
here the last is distinguished from not-covered: where the run shows that no rank came to the finding's line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ddp_audit.compare.reached import Reached
from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import CONFIRMED, NOT_COVERED, NOT_EXERCISED, NOT_OBSERVED, Finding

if TYPE_CHECKING:
    from ddp_audit.rule import Rule

_STRENGTH: dict[str | None, int] = {NOT_COVERED: 0, NOT_EXERCISED: 1, NOT_OBSERVED: 2, CONFIRMED: 3}
_REASONS = {
    True: "This line ran, and the run recorded nothing to judge it by.",
    False: "Every rank ended before this line.",
    None: "The trace does not show whether this line ran, and recorded nothing to judge it by.",
}


def judge(findings: Iterable[Finding], run: RecordedRun, rules: Mapping[str, Rule] | Iterable[Rule]) -> None:
    """Set the verdict of each finding whose rule is known, and its reason where the run does not decide.

    A verdict that an earlier attempt of the run gave is replaced by a stronger one only.
    """
    by_code = rules if isinstance(rules, Mapping) else {rule.code: rule for rule in rules}
    reached = Reached(run)
    for finding in findings:
        rule = by_code.get(finding.code)
        if rule is None:
            continue
        found, reason = rule.verify(finding, run), ""
        if found not in (CONFIRMED, NOT_OBSERVED):
            came = reached.says(finding.span)
            found, reason = NOT_COVERED if came is False else NOT_EXERCISED, _REASONS[came]
            shows: str = getattr(rule, "trace_evidence", "")  # a project's own rule may say nothing
            if came is not False and shows:
                reason = f"{reason} What would show it: {shows[:1].lower()}{shows[1:]}"
        if _STRENGTH[found] > _STRENGTH.get(finding.verdict, -1):
            finding.verdict, finding.verdict_reason = found, reason
