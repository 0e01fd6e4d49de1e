"""The answers of the server: a few objects with short texts, whatever the size of what was audited.

Each text is cut and each list has an end, and what is left out is counted: an answer must fit what a model reads at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddp_audit.compare.explain import rank_list
from ddp_audit.findings import Related
from ddp_audit.report.steps import in_order_of_flow
from ddp_audit.report.summary import count

MOST_FINDINGS = 50
_MOST_TEXT = 600  # characters of one text
_MOST_STEPS = 8
_MOST_PLACES = 8
_MOST_ROWS = 20  # of any other list
_SEVERITIES = ("error", "warning", "info")


@dataclass
class FindingAnswer:
    """One cause: the finding at its first place, and its other places."""

    severity: str
    code: str
    name: str
    confidence: str
    place: str
    message: str
    steps: list[str]
    also_at: list[str]
    fix: str
    fixable: str
    verdict: str | None = None
    verdict_reason: str | None = None


@dataclass
class AuditAnswer:
    """An audit. `left_out` counts findings that are not in the list; `infos` counts infos by rule where none are listed."""

    summary: str
    findings: list[FindingAnswer]
    left_out: int
    infos: dict[str, int]
    coverage: dict[str, Any]
    not_audited: list[str]
    notes: list[str]


@dataclass
class RuleAnswer:
    """The page of a rule."""

    code: str
    name: str
    severity: str
    preview: bool
    what: str
    why: str
    quiet: str
    confirmed: str
    fix: str
    bad: str
    good: str


@dataclass
class DivergenceAnswer:
    """One place where ranks diverge. `ranks` says for groups of ranks what they were in, and from where."""

    where: str
    kind: str
    ranks: dict[str, str]
    explanation: str


@dataclass
class DiffAnswer:
    """The comparison of a recorded run. `standing` says for groups of ranks how they ended, or where they wait."""

    verdict: str
    world_size: int
    complete: bool
    divergences: list[DivergenceAnswer]
    silent: list[str]
    standing: dict[str, str]
    left_out: int


@dataclass
class TraceAnswer:
    """A recorded run in short, with its verdicts on what an audit finds in the script."""

    command: str
    torch: str
    verdict: str
    world_size: int
    complete: bool
    standing: dict[str, str]
    divergence: str
    silent: list[str]
    findings: list[FindingAnswer]


@dataclass
class BatchAnswer:
    """Launch and batch arithmetic: the object of `ddp-audit batch --format json`, with short lists."""

    answer: dict[str, Any]


def cut(text: str) -> str:
    """Return a text that is not too long.

    >>> cut("a" * 700).endswith(" .."), len(cut("a" * 700))
    (True, 600)
    """
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + " .."


def audit_answer(document: Mapping[str, Any], severity: str, limit: int) -> AuditAnswer:
    """Return what an audit found, one entry a cause, the gravest first."""
    causes = _causes(document["findings"])
    shown = [cause for cause in causes if _SEVERITIES.index(cause[0]["severity"]) <= _SEVERITIES.index(severity)]
    limit = max(1, min(limit, MOST_FINDINGS))
    counts = Counter(cause[0]["severity"] for cause in causes)
    said = ", ".join(count(counts[word], word) for word in _SEVERITIES if counts[word])
    coverage = document["coverage"] or {}
    scripts = coverage.get("scripts", [])
    left = coverage.get("not_followed", [])
    infos = Counter(f"{cause[0]['code']} {cause[0]['name']}" for cause in causes if cause not in shown)
    return AuditAnswer(
        (f"{said or 'No hazards found'} in {count(document['files'], 'file')}" if document["files"] else "No file was audited")
        + (f"; {document['suppressed']} suppressed" if document["suppressed"] else "")
        + (f"; {len(document['errors'])} could not be read" if document["errors"] else ""),
        [_finding(cause) for cause in shown[:limit]],
        max(0, len(shown) - limit),
        dict(infos.most_common(_MOST_ROWS)),
        {
            "complete": coverage.get("complete", False),
            "scripts": {one["path"]: one["followed"] for one in scripts[:_MOST_ROWS]},
            "not_followed": [cut(f"{_place(one)}: {one['what']}") for one in left[:_MOST_PLACES]],
            "not_followed_in_all": len(left),
        },
        [cut(f"{_place(one)}: {one['message']}") for one in document["errors"][:_MOST_ROWS]],
        [cut(note) for note in document.get("notes", [])[:_MOST_ROWS]],
    )


def _causes(findings: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Findings of one cause together, as `places` tells, the gravest first."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for number, finding in enumerate(findings):
        places = [_place(place) for place in finding["places"] or []]
        groups.setdefault((finding["code"], *places) if places else (str(number),), []).append(finding)
    for group in groups.values():
        group.sort(key=lambda finding: _SEVERITIES.index(finding["severity"]))
    return sorted(groups.values(), key=lambda group: _SEVERITIES.index(group[0]["severity"]))


def _finding(cause: Sequence[Mapping[str, Any]]) -> FindingAnswer:
    first = cause[0]
    related = [Related(step["path"], step["line"], step["role"], step["text"], step["cell"]) for step in first["related"]]
    steps = [f"{step.place} {step.role}: {step.text}" for step in in_order_of_flow(related)]
    fix = first["fix"] or {"safety": "display-only", "description": ""}
    others = [place for place in dict.fromkeys(map(_place, first["places"] or [])) if place != _place(first)]
    reason = first.get("verdict_reason")
    return FindingAnswer(
        first["severity"],
        first["code"],
        first["name"],
        first["confidence"],
        f"{_place(first)}:{first['column']}",
        cut(first["message"]),
        [cut(step) for step in steps[:_MOST_STEPS]],
        others[:_MOST_PLACES],
        cut(fix["description"]),
        {"safe": "ddp-audit --fix", "unsafe": "ddp-audit --fix --unsafe-fixes"}.get(fix["safety"], "by hand"),
        first.get("verdict"),
        None if reason is None else cut(reason),
    )


def _place(one: Mapping[str, Any]) -> str:
    cell = f"cell {one['cell']}:" if one.get("cell") else ""
    return f"{one['path']}:{cell}{one['line']}" if one.get("line") else str(one["path"])


def rule_answers(document: Mapping[str, Any]) -> list[RuleAnswer]:
    """Return the pages of rules."""
    return [
        RuleAnswer(
            *(
                rule[key]
                for key in ("code", "name", "severity", "preview", "what", "why", "quiet", "confirmed", "remedy", "bad", "good")
            )
        )
        for rule in document["rules"][:3]
    ]


def diff_answer(document: Mapping[str, Any]) -> DiffAnswer:
    """Return where the ranks of a run diverge."""
    found = document["divergences"]
    return DiffAnswer(
        document["verdict"],
        document["world_size"],
        document["complete"],
        [_divergence(one) for one in found[:5]],
        [_silent(one) for one in document["silent"][:_MOST_ROWS]],
        _standing(document["ranks"]),
        max(0, len(found) - 5) + max(0, len(document["silent"]) - _MOST_ROWS),
    )


def _divergence(one: Mapping[str, Any]) -> DivergenceAnswer:
    cells: dict[str, list[int]] = {}
    for rank, event in one["ranks"].items():
        cells.setdefault(_event(event), []).append(int(rank))
    ranks = {rank_list(sorted(ranks)): cut(text) for text, ranks in list(cells.items())[:_MOST_PLACES]}
    where = f"collective {one['index']} of {one['group_text']}"
    return DivergenceAnswer(where, one["kind"], ranks, cut(one["explanation"]))


def _event(event: Mapping[str, Any] | None) -> str:
    if event is None:
        return "nothing"
    size = "" if event["numel"] is None else f" of {event['numel']} {event['dtype']}"
    way = " < ".join(event["stack"][:3]) or "an unknown place"
    return f"{event['op']}{size} ({event['origin']}) at {way}"


def _silent(fault: Mapping[str, Any]) -> str:
    at = f" at {fault['site']}" if fault["site"] else ""
    return cut(f"{fault['kind']}, {rank_list(fault['ranks'])}{at}: {fault['explanation']}")


def _standing(ranks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    cells: dict[str, list[int]] = {}
    for rank, state in ranks.items():
        how = "".join(f", {key} {state[key]}" for key in ("code", "error", "raised_at") if state.get(key) is not None)
        cells.setdefault(f"{state['state']}{how}; last: {state['last']}", []).append(int(rank))
    rows = {rank_list(sorted(own)): cut(text) for text, own in list(cells.items())[:_MOST_ROWS]}
    rest = [rank for own in list(cells.values())[_MOST_ROWS:] for rank in own]
    return {**rows, rank_list(sorted(rest)): "elsewhere"} if rest else rows


def trace_answer(document: Mapping[str, Any], meta: Mapping[str, Any], audited: Mapping[str, Any] | None) -> TraceAnswer:
    """Return a run in short; `audited` is an audit of its script with the verdicts of the run."""
    diff = diff_answer(document)
    first = diff.divergences[0] if diff.divergences else None
    parts = [] if first is None else [first.where, *(f"{ranks}: {text}" for ranks, text in first.ranks.items()), first.explanation]
    command = meta.get("command")
    return TraceAnswer(
        cut(" ".join(map(str, command)) if isinstance(command, list) else str(command or "")),
        str(meta.get("torch") or ""),
        diff.verdict,
        diff.world_size,
        diff.complete,
        diff.standing,
        cut("; ".join(parts)),
        diff.silent,
        [] if audited is None else [_finding(cause) for cause in _causes(audited["findings"])[:_MOST_ROWS]],
    )


def batch_answer(document: Mapping[str, Any]) -> BatchAnswer:
    """Return the arithmetic, with lists that have an end."""
    lists = {key: value for key, value in document.items() if isinstance(value, list)}
    left = {key: len(value) - _MOST_PLACES for key, value in lists.items() if len(value) > _MOST_PLACES}
    short = {**document, **{key: value[:_MOST_PLACES] for key, value in lists.items()}}
    return BatchAnswer({**short, **({"left_out": left} if left else {})})
