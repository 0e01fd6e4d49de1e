"""The predicted run of a script as plain objects: the key `run` of `check --explain-run --format json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddp_audit.compare.predicted import AgreedUntil, Agreement, Difference, Disagrees
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import BACKWARD, COLLECTIVE, FORWARD, STEP, Event
from ddp_audit.report import sides
from ddp_audit.report.run_text import reached
from ddp_audit.source.paths import cell_and_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddp_audit.explore.exact import Run
    from ddp_audit.explore.proof import Predicted

_KINDS = (COLLECTIVE, FORWARD, BACKWARD, STEP)


def as_object(predicted: Predicted, path: str, beyond: Sequence[str] = ()) -> dict[str, Any]:
    """`ranks` maps each followed rank to its events in order; `outcome` is completes, hangs, aborts, fails, `goes on` or
    `nothing predicted`. `beyond` are sentences about findings that the run does not show."""
    run = predicted.run
    return {
        "path": path,
        "world_size": run.world_size,
        "outcome": predicted.kind,
        "why": predicted.why or None,
        "torch": run.assumed_torch or None,
        "rests_on": list(predicted.parting.rests_on) if predicted.parting is not None else [],
        "beyond": list(beyond),
        "main_line": [flip.text for flip in predicted.flips],
        "explanation": run.outcome.explanation,
        "ranks": {str(r): [event(e) for e in reached(run, r) if e.kind in _KINDS] for r in sorted(run.sequences)},
        "raised": {str(rank): text for rank, text in sorted(run.raised.items())},
        "divergences": [
            {"group": d.group, "index": d.index, "kind": d.kind, "explanation": d.explanation, "guards": _guards(run, d)}
            for d in run.divergences()
        ],
        "assumptions": [
            {"path": a.path, **_line(a.line), "text": a.text, "taken": a.taken, "local": a.local} for a in run.assumptions
        ],
        "variants": [
            {**_line(v.assumption.line), "text": v.assumption.text, "rank": v.rank, "outcome": v.run.seen_kind}
            for v in run.variants
        ],
        "notes": run.notes,
        "bounds": [*run.bounds, *dict.fromkeys(run.cut.values())],
    }


def _line(line: int) -> dict[str, int | None]:
    cell, inner = cell_and_line(line)
    return {"cell": cell, "line": inner}


def _guards(run: Run, divergence: Divergence) -> dict[str, Any]:
    """By rank the condition that led it to its call and others not; ranks without one are left out."""
    found = {rank: run.guard_of(rank, e) for rank, e in sorted(divergence.ranks.items()) if e is not None}
    return {
        str(rank): {"path": taken.path, **_line(taken.line), "text": taken.text, "taken": taken.answer}
        for rank, taken in found.items()
        if taken is not None
    }


def event(one: Event) -> dict[str, Any]:
    """One event; what is not known is null. A step has `local`: the parameters whose gradient was not reduced."""
    out: dict[str, Any] = {
        "kind": one.kind,
        "op": one.op or None,
        "origin": one.origin if one.kind == COLLECTIVE else None,
        "numel": one.numel,
        "dtype": one.dtype,
        "root": one.root,
        "reduce_op": one.reduce_op,
        "site": None if one.site is None else str(one.site),
    }
    if one.kind == COLLECTIVE and one.group != "default":
        out["group"] = one.group
    if one.kind == STEP:
        out["local"] = list(one.detail.get("local", ()))
    return out


def agreement_object(agreement: Agreement, *, full: bool = False) -> dict[str, Any]:
    """The key `prediction` of a traced run: how far prediction and record agree, and both sequences.

    `result` is agreed-to-end, agreed-until or disagrees; `why` says why no further, or where; `kind` what disagrees.

    Unless `full`, runs of equal steps stand once, with the number of times.
    """
    result = agreement.result
    return {
        "result": result.name,
        "agrees": not isinstance(result, Disagrees),
        "compared": {str(rank): count for rank, count in sorted(agreement.compared.items())},
        "why": result.why if isinstance(result, AgreedUntil) else result.where if isinstance(result, Disagrees) else None,
        "kind": result.kind if isinstance(result, Disagrees) else None,
        "difference": None if agreement.difference is None else _difference(agreement.difference),
        "sequences": sides.as_object(agreement, event, full=full),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "rank": difference.rank,
        "index": difference.index,
        "what": difference.what,
        "predicted": None if difference.predicted is None else event(difference.predicted),
        "recorded": None if difference.recorded is None else event(difference.recorded),
    }
