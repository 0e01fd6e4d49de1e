"""The prediction of a traced run, held against its record once it has ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit.cli.traced import find_script
from ddp_audit.compare.predicted import Agreement, hold_against
from ddp_audit.compare.run import RecordedRun
from ddp_audit.launch import LaunchError, read_command
from ddp_audit.launch.model import PYTHON
from ddp_audit.outcome import Options, UsageError
from ddp_audit.report import sides
from ddp_audit.source.paths import place_of

if TYPE_CHECKING:
    from ddp_audit.explore.exact import Run
    from ddp_audit.explore.exact.state import Assumption

FILE = "prediction.json"
_TRIES = 12  # other answers to conditions on local data that are tried where the first prediction differs
_MOST_RANKS = 4  # ranks that are interpreted where a run has many


@dataclass(slots=True)
class Foretold:
    """A prediction and how far the record bears it out. `other` is the answer to a local condition that made them agree."""

    agreement: Agreement
    why: str = ""  # why the prediction ended before the run, if it did
    other: str = ""


def foretold(command: Sequence[str], recorded: RecordedRun) -> Foretold | None:
    """Predicts what a command does and holds the record of its run against that; None where its script is not to be found."""
    from ddp_audit.explore.exact import interpreted, predict, variant
    from ddp_audit.predicted import job_of

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
    found = _held(run, recorded)
    if found.agreement.difference is None:
        return found
    runs = interpreted(job)
    chances = [(a, rank, asked) for asked in range(3) for a in run.assumptions if a.local for rank in job.ranks[:_MOST_RANKS]]
    for assumption, rank, asked in chances[:_TRIES]:
        other = _held(variant(job, runs, assumption, rank, asked).run, recorded)
        if other.agreement.difference is None:
            other.other = _said(assumption, rank, asked)
            return other
    return found


def _held(run: Run, recorded: RecordedRun) -> Foretold:
    sequences = {rank: events[: run.stops.get(rank, len(events)) + 1] for rank, events in run.sequences.items()}
    agreement = hold_against(sequences, recorded, certain=run.certain, stops=run.stops, ended=not run.cut)
    return Foretold(agreement, next(iter([*run.bounds, *run.cut.values()]), "") if run.certain or run.cut else "")


def _said(assumption: Assumption, rank: int, asked: int) -> str:
    answer = "false" if assumption.taken == "true" else "true"
    return f"{place_of(assumption.path, assumption.line)} {assumption.text}: {answer} on rank {rank}, time {asked + 1}"


def told(found: Foretold, *, full: bool = False) -> list[str]:
    """Whether prediction and record agree, and both of them side by side, event by event."""
    return [*_summary(found), *sides.lines(found.agreement, full=full)]


def _summary(found: Foretold) -> list[str]:
    agreement = found.agreement
    counts = sorted(set(agreement.compared.values()))
    each = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}" if counts else "0"
    if agreement.difference is None:
        text = f"Prediction and trace agree on {each} collectives of each rank"
        text += f", with {found.other}." if found.other else f"; no further was predicted: {found.why}." if found.why else "."
        return sides.wrapped(text)
    apart = agreement.difference
    text = (
        f"Prediction and trace part in collective {apart.index} of rank {apart.rank} ({apart.what}), after {each} collectives of "
        "each rank on which they agree. That says something of the prediction, not of the run."
    )
    return sides.wrapped(text)


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
    if found.why:
        out["ended"] = found.why
    return out
