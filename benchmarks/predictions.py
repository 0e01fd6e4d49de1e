"""The predicted runs of the case programs against what real runs of them showed: the second part of the score sheet.

A program counts as predicted where the main line ends as its header says, or the run does in which one rank alone takes a named
condition on local data the other way. What a header says of samples, factors or devices is no end of a run: `clean` here.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddp_audit.audit import Options, audit
from ddp_audit.explore.exact import FAILS, Run, interpreted, variant
from ddp_audit.explore.proof import CHECKED, Predicted, predicted
from ddp_audit.machine.matching import ABORTS, COMPLETES, HANGS
from ddp_audit.predicted import job_of

if TYPE_CHECKING:
    from case import Outcome, Program

    from ddp_audit.explore.exact import Job

TITLE = "## Predicted runs"
CLEAN = "clean"
WORDS = ("hang", "abort", "error", "gradients-local", CLEAN)
PROVES = frozenset({"DDP213", "DDP118"})  # the rules of predicted runs: on a clean program each finding of theirs is false
_MOST_RANKS, _TIMES, _MOST_TRIED = 4, 3, 12


@dataclass(slots=True)
class Row:
    """Counts of the programs with one outcome."""

    programs: int = 0
    main: int = 0  # the main line gives the outcome
    local: int = 0  # one rank's answer to a condition on its data does
    proven: int = 0  # the main line, and nothing was assumed for it
    open: int = 0  # nothing is predicted, or not to the end
    other: int = 0  # another end is predicted
    found: int = 0  # findings of the rules of predicted runs


@dataclass(slots=True)
class Predictions:
    """What came of all programs: a row an outcome, apart for programs of frameworks, and the false ones by name."""

    rows: dict[tuple[bool, str], Row]
    false: list[str]


def score() -> Predictions:
    """Predicts every case program that can be run somewhere."""
    from case import programs

    result = Predictions(defaultdict(Row), [])
    here = Path.cwd()
    for program in programs():
        shown = {outcome.word: outcome for outcome in program.outcomes}
        if "not-run" in shown:
            continue
        os.chdir(program.path.parent)
        try:
            _score_program(result, program, shown)
        finally:
            os.chdir(here)
    return result


def _score_program(result: Predictions, program: Program, shown: Mapping[str, Outcome]) -> None:
    word = next((word for word in WORDS if word in shown), CLEAN)
    row = result.rows[bool(program.needs), word]
    row.programs += 1
    options = Options(launch=program.launch or None)
    job = job_of([program.path.name], options, bounds=CHECKED)
    judged = None if job is None else predicted(job)
    main = judged is not None and _gives(judged.run, word, shown.get(word))
    tried = () if main or judged is None or word == CLEAN else _variants(judged)
    by_condition = any(_gives(run, word, shown[word]) for run in tried)
    row.main += main
    row.local += by_condition
    row.proven += main and judged is not None and _is_proven(judged, word)
    if not main and not by_condition:
        is_open = _is_open(judged) or (word != CLEAN and judged is not None and judged.run.kind == COMPLETES)
        row.open += is_open
        row.other += not is_open
    if word == CLEAN:
        said = [finding for finding in audit([program.path.name], options).findings if finding.code in PROVES]
        wanted = {code for code, _ in program.expects}
        row.found += any(finding.code not in wanted for finding in said)
        if not main and not _is_open(judged):
            result.false.append(f"{program.name}: {judged.run.kind if judged else ''}")
        result.false += [f"{program.name}: {f.code} in line {f.span.line}" for f in said if f.code not in wanted]


def _is_open(judged: Predicted | None) -> bool:
    """Whether a prediction says nothing of how the run ends."""
    return judged is None or judged.run.kind not in (COMPLETES, HANGS, ABORTS, FAILS)


def _gives(run: Run, word: str, outcome: Outcome | None) -> bool:
    """Whether a predicted run ends as a header says."""
    if word == CLEAN:
        return run.kind == COMPLETES
    ranks = None if outcome is None else outcome.ranks
    match word:
        case "hang":
            waiting = {rank for rank, at in run.stops.items() if at < len(run.sequences[rank])}
            return run.kind == HANGS and (ranks is None or ranks <= waiting)
        case "abort":
            return run.kind == ABORTS
        case "error":
            said = [text for rank, text in run.raised.items() if ranks is None or rank in ranks]
            return bool(said) and outcome is not None and any(outcome.text.partition(":")[0] in text for text in said)
    return bool(run.local_steps())


def _is_proven(judged: Predicted, word: str) -> bool:
    """Whether nothing had to be assumed."""
    if word in ("hang", "abort"):
        return judged.parting is not None and not judged.parting.rests_on
    if word == "gradients-local":
        return any(not step.rests_on for step in judged.steps)
    return not any(judged.run.doubts.values())


def _variants(judged: Predicted) -> Iterator[Run]:
    """The runs in which one rank alone takes a condition on local data the other way, the first few times that it is asked."""
    job: Job | None = judged.job
    if job is None:
        return
    runs: dict[int, Any] = interpreted(job)
    local = [assumption for assumption in judged.run.assumptions if assumption.local]
    tries = [(a, rank, time) for time in range(_TIMES) for a in local for rank in job.ranks[:_MOST_RANKS] if rank in runs]
    for assumption, rank, time in tries[:_MOST_TRIED]:
        yield variant(job, runs, assumption, rank, time).run


def sheet(found: Predictions) -> str:
    """The part of the score sheet."""
    lines = [
        TITLE,
        "Case programs by what a real run of them showed. Main line: the predicted run ends so (proven: with nothing assumed for "
        "it); local condition: it does where one rank alone takes a named condition on its data the other way; open: no end is "
        "predicted, or none of the kind; other: another end is. `clean` are all that end in order. Rules: clean programs with "
        f"a finding of {' or '.join(sorted(PROVES))} that their header does not expect.",
        "",
        "| programs | showed | number | main line | proven | local condition | open | other | rules |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for needs in (False, True):
        for word in WORDS:
            row = found.rows.get((needs, word))
            if row is not None:
                kind = "of a framework" if needs else "plain"
                lines.append(
                    f"| {kind} | {word} | {row.programs} | {row.main} | {row.proven} | {row.local} | {row.open} | {row.other} "
                    f"| {row.found if word == CLEAN else ''} |"
                )
    lines += ["", f"False, which is another end, or such a finding, on a clean program: {len(found.false)}."]
    return "\n".join([*lines, *(f"- {text}" for text in found.false)]) + "\n"
