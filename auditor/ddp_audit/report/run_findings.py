"""What a predicted run does not show of the findings: those whose lines it did not reach, and what kept it from them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ddp_audit.explore.proof import sites_of
from ddp_audit.findings import Finding, Related
from ddp_audit.machine.matching import COMPLETES

if TYPE_CHECKING:
    from ddp_audit.explore.proof import Predicted
    from ddp_audit.outcome import AuditResult
    from ddp_audit.rule import Rule
    from ddp_audit.source.notebook import Notebook

_OF_RUNS = frozenset({"hang", "abort", "gradients-local", "parameters-differ"})  # outcomes that a predicted run can show


def of_runs(findings: Iterable[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """The errors and warnings whose hazard would show in a predicted run that meets it."""
    return [
        finding
        for finding in findings
        if finding.severity != "info" and finding.code in rules and _words(rules[finding.code]) & _OF_RUNS
    ]


def _words(rule: Rule) -> set[str]:
    return {part.split()[0] for part in rule.outcome.split(";") if part.strip()}


def beyond(predicted: Predicted, findings: Iterable[Finding], result: AuditResult) -> Iterator[str]:
    """A sentence for each finding of a result that the run does not show: not reached, or reached and taken alike by all ranks."""
    shown = _shown(predicted)
    notebooks = result.notebooks
    for finding in (_in_joined_code(finding, notebooks) for finding in findings):
        span = finding.span
        lines = {(span.path, line) for line in range(span.line, span.end_line + 1)}
        related = {(place.path, place.line) for place in finding.related if place.role != "call"}
        if shown & (lines | related):
            continue
        place = f"{finding.code} (line {span.line} of {span.path})"
        if lines & predicted.run.lines:
            sure = predicted.kind == COMPLETES and predicted.run.is_whole
            other = "it takes an option, a version or data otherwise" if sure else "what the ranks come to is not known for sure"
            yield f"{place} is reached, and this run does not show it: {other}."
            continue
        why = _kept_from(predicted, span.path, span.line, result.sources.get(span.path, ()), notebooks.get(span.path))
        yield f"{place} is not reached here{f': {why}' if why else ''}."


def _shown(predicted: Predicted) -> set[tuple[str, int]]:
    """The places at which a run shows a hazard: where ranks diverge or cross, what sent them there, steps on local gradients."""
    run, shown = predicted.run, set() if predicted.parting is None else set(sites_of(predicted.parting))
    events = [event for one in run.divergences() for event in one.ranks.values() if event is not None]
    shown |= {(event.site.path, event.site.line) for event in [*events, *run.local_steps()] if event.site is not None}
    condition = run.parting() if predicted.parting is None else predicted.parting.condition
    if condition is not None and (predicted.parting is not None or run.divergences()):
        shown.add((condition.path, condition.line))
    return shown


def _in_joined_code(finding: Finding, notebooks: Mapping[str, Notebook]) -> Finding:
    """A finding with the lines that the run has, which in a notebook are those of the joined cells."""

    def line(place: Related) -> int:
        return place.line if place.cell is None else notebooks[place.path].joined(place.cell, place.line)

    if not notebooks:
        return finding
    span = finding.span if finding.cell is None else notebooks[finding.span.path].joined_span(finding.cell, finding.span)
    return replace(finding, span=span, related=[replace(place, line=line(place)) for place in finding.related])


def _kept_from(predicted: Predicted, path: str, line: int, source: Sequence[str], notebook: Notebook | None) -> str:
    """The condition around a line that the run asked and that never led there."""
    try:
        tree = ast.parse("\n".join(source))
    except SyntaxError:
        return ""
    if notebook is not None:
        notebook.mark(tree)
    around = [node for node in ast.walk(tree) if isinstance(node, ast.If) and node.lineno < line <= (node.end_lineno or 0)]
    for node in sorted(around, key=lambda found: found.lineno):
        wanted = any(part.lineno <= line <= (part.end_lineno or 0) for part in node.body)
        times = [
            answer
            for said in predicted.run.answers.values()
            for (where, at, _, _), answer in said.items()
            if where == path and at == node.test.lineno
        ]
        if times and wanted not in times:
            most = max(
                sum(where == path and at == node.test.lineno for where, at, _, _ in said) for said in predicted.run.answers.values()
            )
            text = " ".join(ast.unparse(node.test).split())
            often = "the one time" if most == 1 else f"all {most} times"
            return f"`{text}` (line {node.test.lineno}) was {str(not wanted).lower()} {often} that it was asked"
    return ""
