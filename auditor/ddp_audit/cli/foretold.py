"""The prediction of a traced run, held against its record once it has ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit.cli.traced import find_script
from ddp_audit.compare.endings import ABORTS, EXITS, FAILS, RETURNS, WAITS, End
from ddp_audit.compare.explain import counted, rank_list
from ddp_audit.compare.predicted import AgreedToEnd, AgreedUntil, Agreement, Disagrees
from ddp_audit.compare.run import RecordedRun
from ddp_audit.launch import LaunchError, read_command
from ddp_audit.launch.model import PYTHON
from ddp_audit.outcome import Options, UsageError
from ddp_audit.report import sides
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact.state import Assumption

FILE = "prediction.json"
_TRIES = 12  # other answers to conditions on local data that are tried where the first prediction differs
_MOST_RANKS = 4  # ranks that are interpreted where a run has many


@dataclass(slots=True)
class Foretold:
    """A prediction and how far the record bears it out. `other` is the answer to a local condition that made them agree."""

    agreement: Agreement
    other: str = ""


def foretold(command: Sequence[str], recorded: RecordedRun) -> Foretold | None:
    """Predicts what a command does and holds the record of its run against that; None where its script is not to be found."""
    from ddp_audit.explore.exact import interpreted, predict, variant
    from ddp_audit.predicted import against_record, job_of

    try:
        launch = read_command(list(command))
        script = find_script(launch)
        if script is None:
            return None
        if launch.kind == PYTHON:
            launch = replace(launch, world_size=None, nproc_per_node="unstated")
        job = job_of([script], Options(launch=launch, defaults_hold=True))
    except (LaunchError, UsageError):
        return None
    if job is None:
        return None
    job = replace(job, world_size=recorded.world_size)
    run = predict(job)
    found = Foretold(against_record(run, recorded))
    if not isinstance(found.agreement.result, Disagrees):
        return found
    runs = interpreted(job)
    chances = [(a, rank, asked) for asked in range(3) for a in run.assumptions if a.local for rank in job.ranks[:_MOST_RANKS]]
    for assumption, rank, asked in chances[:_TRIES]:
        other = Foretold(against_record(variant(job, runs, assumption, rank, asked).run, recorded))
        if not isinstance(other.agreement.result, Disagrees):
            other.other = _said(assumption, rank, asked)
            return other
    return found


def _said(assumption: Assumption, rank: int, asked: int) -> str:
    answer = "false" if assumption.taken == "true" else "true"
    return f"{place_of(assumption.path, assumption.line)} {assumption.text}: {answer} on rank {rank}, time {asked + 1}"


def told(found: Foretold, *, full: bool = False) -> list[str]:
    """How far prediction and record agree; where they do not, or if `full`, both of them side by side, event by event."""
    table = full or isinstance(found.agreement.result, Disagrees)
    return [*_summary(found), *(sides.lines(found.agreement, full=full) if table else ())]


def _summary(found: Foretold) -> list[str]:
    agreement, result = found.agreement, found.agreement.result
    counts = sorted(set(agreement.compared.values())) or [0]
    each = counted(counts[-1], "collective") if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,} collectives"
    ranks = sorted(agreement.compared)
    whole = ranks == list(range(len(ranks))) and len(ranks) == agreement.world_size
    who = "the rank" if whole and len(ranks) == 1 else "each rank" if whole else rank_list(ranks) if ranks else "no rank"
    what = f"{each} of {who}"
    with_other = f", with {found.other}" if found.other else ""
    match result:
        case AgreedToEnd(ends):
            return [f"Prediction and trace agree to the end: {what}, then {_how(ends)}{with_other}."]
        case AgreedUntil(why):
            return sides.wrapped(f"Prediction and trace agree on {what}{with_other}, and no further is known: {why}.")
        case Disagrees(_, where):
            return sides.wrapped(
                f"Prediction and trace disagree after {what}. {where} That says something of the prediction, not of the run."
            )


def _how(ends: Mapping[int, End]) -> str:
    """How all ranks end, in few words: the worst of it."""
    kinds = {end.kind for end in ends.values()}
    words = {ABORTS: "an abort", FAILS: "an exception", WAITS: "a hang", EXITS: "an exit code", RETURNS: "exit"}
    return next(text for kind, text in words.items() if kind in kinds)


def keep(found: Foretold, directory: str, *, full: bool = False) -> None:
    """Writes how far they agree into the trace folder, for `diff`."""
    (Path(directory) / FILE).write_text(json.dumps(as_object(found, full=full), indent=2) + "\n", encoding="utf-8")


def kept(directory: str) -> dict[str, Any] | None:
    """What `keep` wrote, None where there is nothing."""
    try:
        found = json.loads((Path(directory) / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def as_object(found: Foretold, *, full: bool = False) -> dict[str, Any]:
    """The key `prediction` of the JSON of `trace` and `diff`."""
    from ddp_audit.report.run_json import agreement_object

    out = agreement_object(found.agreement, full=full)
    if found.other:
        out["with"] = found.other
    return out
