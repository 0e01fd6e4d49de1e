"""Findings under the rules that report them, each rule with its fix: for a project that is cleaned up rule by rule."""

from __future__ import annotations

from ddp_audit.outcome import AuditResult
from ddp_audit.report import causes as by_cause
from ddp_audit.report.causes import Cause
from ddp_audit.report.columns import wrap
from ddp_audit.report.summary import closing_line, count, one_line


def render(result: AuditResult, *, with_infos: bool = False, width: int = 100) -> str:
    """Return the report: the rule with the gravest finding first."""
    causes = by_cause.causes_of(result.findings)
    shown, folded = by_cause.opened(causes, with_infos=with_infos)
    lines = [f"error: {error}" for error in result.errors]
    groups: dict[str, list[Cause]] = {}
    for cause in shown:
        groups.setdefault(cause.finding.code, []).append(cause)
    for group in groups.values():
        first = group[0].finding
        lines.append(f"{first.code} {first.name}: {count(len(group), first.severity)}")
        for cause in group:
            places = ", ".join(one_line(place) for place in (cause.finding.start, *(one.place for one in cause.others)))
            lines += wrap(places, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
            lines += wrap(one_line(cause.finding.message), width, initial_indent="    ", subsequent_indent="    ")
        for fix in dict.fromkeys(cause.finding.fix.description for cause in group if cause.finding.fix):
            lines += wrap(f"Fix: {one_line(fix)}", width, initial_indent="  ", subsequent_indent="    ")
        lines.append("")
    lines += filter(None, [by_cause.infos_line(folded), *by_cause.remarks(result), closing_line(result, causes)])
    return "".join(f"{one_line(line)}\n" for line in lines)
