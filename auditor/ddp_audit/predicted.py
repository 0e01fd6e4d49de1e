"""The job of one script as options describe it, for `check --explain-run` and `trace`; and its prediction next to a record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ddp_audit.audit import Options, UsageError, explicit_overrides, hints_of, launch_of, project_of
from ddp_audit.compare.endings import ABORTS, EXITS, FAILS, RETURNS, UNKNOWN, WAITS, End
from ddp_audit.compare.predicted import Agreement, difference_of, hold_against
from ddp_audit.entries import launch_overrides
from ddp_audit.events import COLLECTIVE, DDP_BUFFERS, DDP_CONSTRUCTOR, Event

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
    return job_of_script(project, entry, launch, overrides, bounds or Bounds(), hints_of(options))


def against_record(run: Run, recorded: RecordedRun) -> Agreement:
    """Compare a predicted run with a recorded one: event by event, and in how each rank ends."""
    sequences = {rank: _until_stop(run, rank, recorded) for rank in run.sequences}
    unknown = _OPAQUE if run.opaque else "" if run.outcome.certain else _MIXED
    why = next(iter(run.bounds), "")
    ends = {rank: predicted_end(run, rank) for rank in run.sequences}
    return hold_against(sequences, recorded, ends=ends, certain=run.certain, unknown=why if run.certain else unknown)


def _until_stop(run: Run, rank: int, recorded: RecordedRun) -> list[Event]:
    """The events of a rank up to the one in which it waits. Broadcasts of one call are under way together: those that were recorded
    after it belong to it."""
    events, real = run.sequences[rank], recorded.ranks.get(rank)
    last = run.stops.get(rank, len(events))
    if last < len(events) and real is not None and events[last].origin in (DDP_BUFFERS, DDP_CONSTRUCTOR):
        sent = [event for event in real.events if event.kind == COLLECTIVE]
        at = sum(event.kind == COLLECTIVE for event in events[: last + 1])
        for event in events[last + 1 :]:
            if event.origin != events[last].origin or event.site != events[last].site or at >= len(sent):
                break
            if difference_of(event, sent[at]) is not None:
                break
            last, at = last + 1, at + 1
    return events[: last + 1]


def predicted_end(run: Run, rank: int) -> End:
    """How a rank of a predicted run ends."""
    from ddp_audit.explore.exact.state import INFERRED

    events, stop = run.sequences[rank], run.stops.get(rank)
    if stop is not None and stop < len(events):
        waits = events[stop]
        return End(
            ABORTS if run.kind == "aborts" else WAITS, f"{waits.what}{f' at {waits.site}' if waits.site is not None else ''}"
        )
    if rank in run.cut:
        return End(UNKNOWN, run.cut[rank])
    inferred = rank in run.raised and not run.bounds and all(doubt.kind == INFERRED for doubt in run.doubts.get(rank, ()))
    if run.kind in ("goes on", "nothing predicted") and not inferred:
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
