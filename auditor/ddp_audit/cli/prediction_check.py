"""The prediction of a traced run, checked against its record once it has ended."""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit.cli.traced import find_script
from ddp_audit.compare.endings import ABORTS, EXITS, FAILS, RETURNS, WAITS, End
from ddp_audit.compare.explain import counted, rank_list
from ddp_audit.compare.open_choices import explained
from ddp_audit.compare.predicted import AgreedToEnd, AgreedUntil, Agreement, Disagrees
from ddp_audit.compare.run import RecordedRun
from ddp_audit.launch import LaunchError, read_command
from ddp_audit.launch.model import PYTHON
from ddp_audit.outcome import Options, UsageError
from ddp_audit.report import sides
from ddp_audit.source.paths import place_of
from ddp_audit.source.plain_pickle import MOST_BYTES, load_plain

if TYPE_CHECKING:
    from ddp_audit.explore.exact.state import Assumption, Machine

FILE = "prediction.json"
_TRIES = 12  # other answers to conditions on local data that are tried where the first prediction differs
_MOST_ASSUMED = 6  # that a disagreement shows
_MOST_RANKS = 4  # ranks that are interpreted where a run has many


@dataclass(slots=True)
class PredictionCheck:
    """A prediction and how far the record bears it out. `other` is the answer to a local condition that made them agree."""

    agreement: Agreement
    other: str = ""
    assumed: list[str] = field(default_factory=list)  # what the source leaves open and the prediction took for granted


def check_prediction(command: Sequence[str], recorded: RecordedRun) -> PredictionCheck | None:
    """Predict what a command does and check the record of its run against that; None if its script cannot be found."""
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
    hints = replace(job.hints, torch=torch_of(recorded) or job.hints.torch)
    job = replace(job, world_size=recorded.world_size, hints=hints, machine=machine_of(recorded))
    run = predict(job)
    assumed = [f"{a.path}:{a.line} {a.text}: {a.taken}" for a in run.assumptions]
    found = PredictionCheck(against_record(run, recorded), assumed=[*assumed, *run.notes])
    if not isinstance(found.agreement.result, Disagrees):
        return found
    runs = interpreted(job)
    chances = [(a, rank, asked) for asked in range(3) for a in run.assumptions if a.local for rank in job.ranks[:_MOST_RANKS]]
    for assumption, rank, asked in chances[:_TRIES]:
        other = PredictionCheck(against_record(variant(job, runs, assumption, rank, asked).run, recorded))
        if not isinstance(other.agreement.result, Disagrees):
            other.other = _said(assumption, rank, asked)
            return other
    trees = {source.path: source.tree for source in job.project.files}
    events, doubts = run.sequences, run.doubts
    difference = found.agreement.result.difference
    rank = job.ranks[0] if difference is None else difference.rank
    why = explained(found.agreement.result, doubts.get(rank, ()), events.get(rank, ()), trees.get)
    if why:
        found.agreement.result = AgreedUntil(why)
    return found


def torch_of(recorded: RecordedRun) -> tuple[int, int] | None:
    """The major and minor version of torch that a run had; None where the record does not say."""
    parts = str(recorded.meta.get("torch") or "").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and all(one.isdecimal() for one in parts[:2]) else None


def machine_of(recorded: RecordedRun) -> Machine:
    """What the record and the disk tell of the machine that ran: its torch, and the files that were there before the run."""
    root, start = Path(str(recorded.meta.get("cwd") or ".")), float(recorded.meta.get("start") or 0)

    def kind_at(path: str) -> str | None:
        try:
            found = (root / path).stat()
        except FileNotFoundError:
            return ""  # what the run itself has removed is reported as missing
        except (OSError, ValueError):
            return None
        if found.st_mtime >= start:
            return None  # the run may have made it
        return "file" if stat.S_ISREG(found.st_mode) else "folder" if stat.S_ISDIR(found.st_mode) else None

    from ddp_audit.explore.exact.state import Machine

    def unpickle(path: str) -> object:
        with (root / path).open("rb") as stream:
            return load_plain(stream.read(MOST_BYTES + 1))

    return Machine(str(recorded.meta.get("torch") or ""), kind_at, unpickle)


def _said(assumption: Assumption, rank: int, asked: int) -> str:
    answer = "false" if assumption.taken == "true" else "true"
    return f"{place_of(assumption.path, assumption.line)} {assumption.text}: {answer} on rank {rank}, time {asked + 1}"


def lines_of(found: PredictionCheck, *, full: bool = False) -> list[str]:
    """How far prediction and record agree; where they do not, or if `full`, both of them side by side, event by event."""
    table = full or isinstance(found.agreement.result, Disagrees)
    assumed = found.assumed[:_MOST_ASSUMED] if isinstance(found.agreement.result, Disagrees) else []
    granted = ["It took for granted:", *(f"  {one}" for one in assumed)] if assumed else []
    return [*_summary(found), *granted, *(sides.lines(found.agreement, full=full) if table else ())]


def _summary(found: PredictionCheck) -> list[str]:
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


def keep(found: PredictionCheck, directory: str, *, full: bool = False) -> None:
    """Writes how far they agree into the trace folder, for `diff`."""
    (Path(directory) / FILE).write_text(json.dumps(as_object(found, full=full), indent=2) + "\n", encoding="utf-8")


def kept(directory: str) -> dict[str, Any] | None:
    """What `keep` wrote, None where there is nothing."""
    try:
        found = json.loads((Path(directory) / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def as_object(found: PredictionCheck, *, full: bool = False) -> dict[str, Any]:
    """The key `prediction` of the JSON of `trace` and `diff`."""
    from ddp_audit.report.run_json import agreement_object

    out = agreement_object(found.agreement, full=full)
    out["assumed"] = found.assumed
    if found.other:
        out["with"] = found.other
    return out
