"""The job of one script as options describe it, for `check --explain-run` and `trace`; and its prediction beside a record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddp_audit.audit import Options, UsageError, explicit_overrides, launch_of, project_of, told_by
from ddp_audit.compare.endings import ABORTS, EXITS, FAILS, RETURNS, UNKNOWN, WAITS, End
from ddp_audit.compare.predicted import Agreement, hold_against
from ddp_audit.entries import launch_overrides

if TYPE_CHECKING:
    from ddp_audit.compare.run import RecordedRun
    from ddp_audit.explore.exact import Bounds, Job, Run

_OPAQUE = "the parameters of a wrapped module are not known, and neither are the sizes of its buckets"
_MIXED = "unlike collectives met, and what follows depends on the values that were exchanged"


def job_of(
    paths: Sequence[str | os.PathLike[str]],
    options: Options,
    *,
    bounds: Bounds | None = None,
    overlay: Mapping[str, bytes] | None = None,
) -> Job | None:
    """The job of the one script that the paths name. Two ranks, where the options do not say how many.

    None where it cannot be read. Raises UsageError where the paths name several scripts.
    """
    from ddp_audit.explore.exact import Bounds
    from ddp_audit.explore.proof import job_of_script

    project = project_of(paths, options, overlay)
    if not project.entries:
        return None
    if len(project.entries) > 1:
        raise UsageError(f"--explain-run explains the run of one script, and there are {len(project.entries)} of them here")
    entry = project.entries[0]
    launch = launch_of(options)
    overrides = {**launch_overrides(launch, entry), **explicit_overrides(options)}
    return job_of_script(project, entry, launch, overrides, bounds or Bounds(), told_by(options))


def against_record(run: Run, recorded: RecordedRun) -> Agreement:
    """Compare a predicted run with a recorded one: event by event, and in how each rank ends."""
    sequences = {rank: events[: run.stops.get(rank, len(events)) + 1] for rank, events in run.sequences.items()}
    unknown = _OPAQUE if run.opaque else "" if run.outcome.certain else _MIXED
    why = next(iter(run.bounds), "")
    ends = {rank: predicted_end(run, rank) for rank in run.sequences}
    return hold_against(sequences, recorded, ends=ends, certain=run.certain, unknown=why if run.certain else unknown)


def predicted_end(run: Run, rank: int) -> End:
    """How a rank of a predicted run ends."""
    events, stop = run.sequences[rank], run.stops.get(rank)
    if stop is not None and stop < len(events):
        waits = events[stop]
        return End(
            ABORTS if run.kind == "aborts" else WAITS, f"{waits.what}{f' at {waits.site}' if waits.site is not None else ''}"
        )
    if rank in run.cut:
        return End(UNKNOWN, run.cut[rank])
    if run.kind in ("goes on", "nothing predicted"):
        return End(UNKNOWN, run.why or next(iter([*run.cut.values(), *run.bounds]), "something was called that was not followed"))
    if rank not in run.raised:
        return End(RETURNS)
    text = run.raised[rank]
    kind, _, said = text.partition(": ")
    if kind == "SystemExit":
        return End(EXITS, code=int(said) if said.isdecimal() else 1)
    if text.startswith("os._exit("):
        code = text.removeprefix("os._exit(").removesuffix(")")
        return End(EXITS, code=int(code) if code.isdecimal() else None)
    return End(FAILS, text, kind.rsplit(".", 1)[-1])
