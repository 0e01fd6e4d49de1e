"""The report as Markdown: for the summary of a job, for a comment, and for an agent that is to fix what was found."""

from __future__ import annotations

from ddp_audit.findings import Finding, Related
from ddp_audit.outcome import AuditResult
from ddp_audit.report import causes as by_cause
from ddp_audit.report.causes import Cause
from ddp_audit.report.rdjson import url_of
from ddp_audit.report.steps import in_order_of_flow, what_of
from ddp_audit.report.summary import closing_line, one_line, sureness


def render(result: AuditResult, *, with_infos: bool = False, title: str = "ddp-audit") -> str:
    """Return the report: counts first, then a section for each cause; folded infos are rows of a table."""
    causes = by_cause.causes_of(result.findings)
    shown, folded = by_cause.opened(causes, with_infos=with_infos)
    lines = [f"# {title}", "", escaped(closing_line(result, causes)), ""]
    lines += [f"- **error** {escaped(str(error))}" for error in result.errors]
    if result.errors:
        lines.append("")
    for cause in shown:
        lines += [*_section(cause, result), ""]
    if folded:
        lines += ["## Infos", "", "| rule | place | message |", "|---|---|---|"]
        lines += [
            f"| {_rule(cause.finding, result)} | {code(cause.finding.start)} | {escaped(cause.finding.message)} |"
            for cause in folded
        ]
        lines.append("")
    lines += [f"{escaped(note)}\n" for note in by_cause.remarks(result)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(cause: Cause, result: AuditResult) -> list[str]:
    finding = cause.finding
    lines = [f"## {finding.severity}: {_rule(finding, result)}", ""]
    lines += [f"{code(finding.start)} ({sureness(finding)})  ", escaped(finding.message), ""]
    source = result.lines_of(finding.span.path, finding.cell)
    if 0 < finding.span.line <= len(source):
        lines += [f"    {one_line(source[finding.span.line - 1].strip())}", ""]
    for number, step in enumerate(in_order_of_flow(finding.related), 1):
        lines.append(f"{number}. {_step(step, result)}")
    if finding.related:
        lines.append("")
    if cause.others:
        lines += ["Also at " + ", ".join(code(one.place) for one in cause.others) + ".", ""]
    if finding.explanation:
        lines += [escaped(" ".join(finding.explanation.split())), ""]
    if finding.fix is not None:
        how = {"safe": " (`ddp-audit --fix`)", "unsafe": " (`ddp-audit --fix --unsafe-fixes`)"}.get(finding.fix.safety, "")
        lines.append(f"**Fix:** {escaped(finding.fix.description)}{how}")
    return lines


def _step(step: Related, result: AuditResult) -> str:
    lines = result.lines_of(step.path, step.cell)
    source = one_line(lines[step.line - 1].strip()) if 0 < step.line <= len(lines) else ""
    said = escaped(what_of(step, source))
    return f"{code(step.place)} {said}" + (f": {code(source)}" if source else "")


def _rule(finding: Finding, result: AuditResult) -> str:
    address = url_of(finding.code, result)
    shown = f"{finding.code} {escaped(finding.name)}"
    return f"[{shown}]({address})" if address else shown


def escaped(text: str) -> str:
    """Return a text without markup, which does not end a row of a table."""
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{letter}" if letter in "\\`*_[]|#" else letter for letter in text)


def code(text: str) -> str:
    """Return a text as code that nothing in it can end."""
    shown = one_line(text).replace("|", "\\|")
    if "`" not in shown:
        return f"`{shown}`"
    longest = max(len(run) for run in "".join(letter if letter == "`" else " " for letter in shown).split())
    ticks = "`" * (longest + 1)
    return f"{ticks} {shown} {ticks}"
