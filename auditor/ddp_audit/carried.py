"""Which finding says what a predicted run proves: that of a rule which knows why, or else the one of the prediction itself.

A rule with `yields_to` reports what the predicted run shows, without a reason of its own. Where a rule whose page promises such an
outcome names one of its places, that rule's finding takes its place, with the severity that the proof has. A finding that the run
refutes becomes a possible one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ddp_audit.findings import SEVERITIES, Finding

if TYPE_CHECKING:
    from ddp_audit.explore.proof import Predicted
    from ddp_audit.rule import Context, Rule

_LOUD = ("warning", "error")
_NEVER = "The predicted run asks this condition, which no setting decides, and no rank comes here."
_REFUTED = "The predicted run takes this condition on each rank, and all ranks still issue the same collectives to the end."


def carry(
    findings: Sequence[Finding], ran: Sequence[Rule], every: Sequence[Rule], context: Context
) -> tuple[list[Finding], list[Finding]]:
    """The findings less those that others take the place of, and those which rest on the predicted run.

    A rule that was not asked for counts too: who ignores it has said so of the hazard, whatever code tells of it.
    """
    by_code = {rule.code: rule for rule in every}
    for finding in findings:
        if (rule_of := by_code.get(finding.code)) is not None and rule_of.of_sequences:
            _doubt_refuted(finding, context)
    told = [finding for finding in findings if by_code[finding.code].yields_to] if by_code else []
    if not told:
        return list(findings), []
    asked = {rule.code for rule in ran}
    wanted = {word for finding in told for word in by_code[finding.code].yields_to}
    silent = [rule for rule in every if rule.code not in asked and _promises(rule, wanted)]
    others = [*findings, *(finding for rule in silent for finding in rule.check(context))]
    kept, resting = [f for f in findings if f not in told], []
    for finding in told:
        rule = by_code[finding.code]
        carriers = [f for f in others if _carries(f, finding, by_code.get(f.code), rule)]
        for carrier in carriers:
            if SEVERITIES.index(carrier.severity) < SEVERITIES.index(finding.severity):
                carrier.severity = finding.severity
                carrier.explanation = f"{carrier.explanation} {finding.explanation}".strip()
        kept += [] if carriers else [finding]
        resting += [f for f in carriers if f.code in asked] if carriers else [finding]
    return kept, resting


def _doubt_refuted(finding: Finding, context: Context) -> None:
    """Make a finding that ranks diverge a possible one, where the whole run comes through its condition and they do not part."""
    if finding.severity not in _LOUD or finding.confidence == "possible" or context.interpret is None:
        return
    predicted = context.exploration.predicted()
    if predicted is None:
        return
    why = _REFUTED if predicted.refutes(_lines(finding)) else ""
    if not why and _is_settled(finding, context) and predicted.passes_by((finding.span.path, finding.span.line)):
        why = _NEVER
    if why:
        finding.confidence = "possible"
        finding.explanation = f"{finding.explanation} {why}".strip()


def _is_settled(finding: Finding, context: Context) -> bool:
    """Whether the program itself decides each condition on the way to a finding: no option, no environment, nothing read."""
    from ddp_audit.program.made import is_of_the_program  # here: an audit that makes no program starts without its modules

    at = (finding.span.path, finding.span.line)
    guards = [guard for node in context.program.nodes if (node.span.path, node.span.line) == at for guard in node.guards]
    return bool(guards) and all(is_of_the_program(guard.test) for guard in guards)


def _promises(rule: Rule, words: Iterable[str]) -> bool:
    """Whether the page of a rule says that its hazard shows in one of these ways."""
    return not rule.yields_to and any(part.split()[0] in words for part in rule.outcome.split(";") if part.strip())


def _carries(other: Finding, finding: Finding, other_rule: Rule | None, rule: Rule) -> bool:
    if other_rule is None or other.severity not in _LOUD or other.confidence == "possible":
        return False
    if not _promises(other_rule, rule.yields_to):
        return False
    return not rule.yields_by_place or not _lines(other).isdisjoint(_lines(finding))


# Related places that say how the program comes there, or where an object was made, and not where ranks diverge.
_DESCRIBES = ("call", "wrap", "buffer")


def _lines(finding: Finding) -> set[tuple[str, int]]:
    own = {(finding.span.path, line) for line in range(finding.span.line, finding.span.end_line + 1)}
    return own | {(place.path, place.line) for place in finding.related if place.role not in _DESCRIBES}


def as_object(predicted: Predicted, path: str, resting: Iterable[Finding]) -> dict[str, Any]:
    """One run of the key `predicted` of the JSON."""
    rests_on = predicted.parting.rests_on if predicted.parting is not None else ()
    return {
        "path": path,
        "world_size": predicted.run.world_size,
        "outcome": predicted.kind,
        "why": predicted.why or None,
        "torch": predicted.run.assumed_torch or None,
        "rests_on": list(rests_on),
        "main_line": [flip.text for flip in predicted.flips],
        "findings": [{"code": f.code, "path": f.span.path, "line": f.span.line} for f in resting],
    }
