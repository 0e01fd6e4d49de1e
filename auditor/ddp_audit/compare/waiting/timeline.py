"""What one rank did, as marks in time: where a phase begins or ends, and where the rank has to wait for others.

A mark says what the rank came to; the phase of the time between two marks follows from both of them. Only what holds a rank up
is a meeting: a collective that blocks its caller, and of a backward pass the last gradient bucket, since autograd goes on while
the earlier ones are under way (torch/csrc/distributed/c10d/reducer.cpp, finalize_backward).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ddp_audit import events
from ddp_audit.events import Event, Site

DATA, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT = "data", "forward", "backward", "optimizer", "checkpoint"
EVALUATION, OTHER = "evaluation", "other code"
PHASES = (DATA, FORWARD, BACKWARD, OPTIMIZER, CHECKPOINT, EVALUATION, OTHER)

# What a mark says that the rank came to.
AT_LOAD, AT_BATCH, AT_FORWARD, AT_EVALUATION = "load", "batch", "forward", "evaluation"
AT_BACKWARD, AFTER_BACKWARD, AT_STEP, AFTER_STEP = "backward", "after backward", "step", "after step"
AT_SAVE, AFTER_SAVE = "save", "after save"
MEETING = "meeting"
MESSAGE = "message"  # a send or receive: until when it waits is not known

Key = tuple[str, int]  # a collective: its group and its number there

_BUCKETS = frozenset({events.DDP_BUCKET, events.DDP_UNUSED_MAP})
_FROM_ROOT = frozenset({"broadcast", "scatter"})
_TO_ROOT = frozenset({"reduce", "gather"})


class Mark(NamedTuple):
    """`key`, `root` and `ends` are of a meeting: the collective, the rank that all wait for or that waits for all (None: each waits
    for each), and when it was left, where that is known to be exact."""

    kind: str
    time: float
    site: Site | None
    key: Key | None = None
    op: str = ""
    root: int | None = None
    ends: float | None = None


def marks_of(recorded: Iterable[Event]) -> list[Mark]:
    """The marks of a rank, in order. They end where a backward pass raised or has not returned."""
    found: list[Mark] = []
    backward: Event | None = None
    bucket: Event | None = None
    for event in recorded:
        if event.kind == events.COLLECTIVE:
            if backward is not None and event.origin in _BUCKETS:
                bucket = event
                continue
            if backward is not None and event.time < (backward.detail["done"] or 0.0):
                _add_meeting(found, event)  # such as SyncBatchNorm's
                continue
        if backward is not None:
            if not _end_backward(found, backward, bucket):
                return found
            backward = bucket = None
        if event.kind == events.BACKWARD:
            found.append(Mark(AT_BACKWARD, event.time, _site(event)))
            backward = event
        elif event.kind == events.COLLECTIVE:
            _add_meeting(found, event)
        else:
            _add_other(found, event)
    if backward is not None:
        _end_backward(found, backward, bucket)
    return found


def _site(event: Event) -> Site | None:
    return event.site or next(iter(event.stack), None)


def _end_backward(found: list[Mark], backward: Event, bucket: Event | None) -> bool:
    done = backward.detail.get("done")
    if done is None or backward.detail.get("raised"):
        return False
    site = _site(backward)
    if bucket is not None and bucket.index is not None:
        found.append(Mark(MEETING, bucket.time, site, (bucket.group, bucket.index), AT_BACKWARD, None, done))
    found.append(Mark(AFTER_BACKWARD, done, site))
    return True


def _add_meeting(found: list[Mark], event: Event) -> None:
    if event.detail.get("thread"):
        return  # of a thread that does not hold up the training
    if event.op in events.POINT_TO_POINT:
        if event.detail.get("async") is False:
            found.append(Mark(MESSAGE, event.time, _site(event)))
        return
    if event.index is None or event.origin in _BUCKETS or (event.origin == events.USER and event.detail.get("async")):
        return
    found.append(Mark(MEETING, event.time, _site(event), (event.group, event.index), event.op, event.root))


def _add_other(found: list[Mark], event: Event) -> None:
    detail, site = event.detail, _site(event)
    done = detail.get("done")
    if event.kind == events.FORWARD:
        found.append(Mark(AT_FORWARD if detail.get("grad") else AT_EVALUATION, event.time, site))
    elif event.kind == events.STEP:
        found.append(Mark(AT_STEP, event.time, site))
        if done:
            found.append(Mark(AFTER_STEP, done, site))
    elif event.kind == events.BATCH:
        waited = (detail.get("waited") or 0) / 1e6
        if waited:
            found.append(Mark(AT_LOAD, event.time - waited, site))
        found.append(Mark(AT_BATCH, event.time, site))
    elif event.kind == events.SAVE:
        found.append(Mark(AT_SAVE, event.time, site))
        if done:
            found.append(Mark(AFTER_SAVE, done, site))


def waits_for(op: str) -> str:
    """Whom a rank waits for in an operation: `all`, the `root`, or with `root` itself the others."""
    return "root" if op in _FROM_ROOT else "to root" if op in _TO_ROOT else "all"


_BY_END = {AT_BATCH: DATA, AT_FORWARD: DATA, AT_EVALUATION: DATA, AT_STEP: OPTIMIZER, AT_SAVE: CHECKPOINT}
_BY_START = {
    AT_STEP: OPTIMIZER,
    AT_SAVE: CHECKPOINT,
    AT_BACKWARD: BACKWARD,
    AT_LOAD: DATA,
    AT_FORWARD: FORWARD,
    AT_EVALUATION: EVALUATION,
}


def phase_of(start: str, end: str) -> str:
    """The phase of the time between two marks; a meeting within a phase does not end it.

    >>> phase_of(AFTER_STEP, AT_FORWARD), phase_of(AT_FORWARD, MEETING), phase_of(AFTER_BACKWARD, AT_STEP)
    ('data', 'forward', 'optimizer')
    """
    return _BY_START.get(start) or _BY_END.get(end, OTHER)


def shown_site(phase: str, start: Mark, end: Mark) -> Site | None:
    """The line that stands for the time between two marks."""
    first, last = (end, start) if phase in (DATA, OPTIMIZER, CHECKPOINT) and start.kind not in _BY_START else (start, end)
    return first.site or last.site
