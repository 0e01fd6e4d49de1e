"""The state of a rank from its events and its process: running, waiting, gone or ended, and the last thing that is known of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from ddp_audit import events
from ddp_audit.compare.run import EXITED, KILLED, RAISED, RUNNING, WAITING, RankRun, backwards, last_of
from ddp_audit.events import Event, Site
from ddp_audit.trace.locked import Stood

_WAIT_AFTER = 0.5  # seconds in a collective before a rank counts as waiting
_ASKED_AFTER = 0.15
_MOST_ANSWERS = 16  # last events that may all be answers of the rank to the question where it stands
_NO_ANSWER_AFTER = 1.5  # seconds without heartbeat of a process that is there: stopped, or its interpreter is locked


def judge(
    run: RankRun,
    waits: Iterable[Event],
    *,
    gone: bool,
    exited: bool,
    raised: bool,
    heartbeat: float,
    untraced: bool = False,
    locked: Callable[[float], Stood | None] = lambda since: None,
    seen: Callable[[], Site | None] = lambda: None,
    blocked: float = 0.0,
) -> None:
    """Sets the state of a rank and its last thing. `waits` are its collectives that have not returned, in order; `locked` says
    where it stands if its interpreter was locked since a time, or a fatal signal has come. `seen` is where its main thread stood at
    the last heartbeat, and since `blocked` in torch.distributed outside of collectives. A rank whose tracer has ended (`untraced`)
    may be anywhere: it stands where its process has shown last."""
    now = time.time()
    run.untraced = untraced = untraced and not (raised or exited)
    if untraced:
        waits, gone = (), False
    waits = _not_left(run.events, list(waits)) if gone else waits
    oldest = next((e for e in waits if gone or now - e.time > _WAIT_AFTER), None)
    lives = not (raised or exited or gone or untraced)
    run.silent = now - heartbeat if lives and 0 < heartbeat < now - _NO_ANSWER_AFTER else 0.0
    shown = locked(run.events[-1].time) if run.events and (run.silent or gone or untraced) and not raised else None
    there = None if shown is None else shown.site
    run.fatal = shown.fatal if shown is not None and gone else ""
    run.blocked = blocked if lives and not run.silent else 0.0
    run.seen = _seen(run, heartbeat, seen) if run.silent or gone or run.blocked else None
    if oldest is not None and gone and (oldest.detail["async"] or oldest.detail["thread"]):
        there = None  # it was under way while the main thread went on
    elif oldest is not None and gone and there is None and oldest.site is not None and str(run.seen) != str(oldest.site):
        oldest = None  # it has returned: a heartbeat saw the main thread at another line
    if there is not None and (oldest is None or oldest.site is None or str(oldest.site) != str(there)):
        oldest = None  # it has returned: nobody could note it
    run.waiting = None if exited and not raised else oldest
    if raised:
        run.state = RAISED
        run.code = run.code if run.code is not None else 1
    elif exited:
        run.state = EXITED
    elif gone:
        run.state = KILLED
    else:
        run.state = WAITING if oldest is not None else RUNNING
    run.locked = there is not None and not untraced
    run.stands = None if raised or oldest is not None else there or _stood(run)
    error = last_of(run.events, events.EXCEPTION) if raised else None
    last = error or oldest or next((e for e in backwards(run.events) if e.kind != events.STACK), None)
    if last is not None:
        prefix = ""
        if last is oldest:
            asked = heartbeat - oldest.time > _ASKED_AFTER  # its completion was looked for at least once
            waits_there = run.state == WAITING and not run.silent
            prefix = "waits in " if waits_there else "in " if asked else "in or just after "
        run.last = prefix + _described(last)
        if run.stands is not None and run.state in (KILLED, RUNNING) and not untraced:
            run.last = f"at {run.stands}, in no collective, after {run.last}"


def _seen(run: RankRun, heartbeat: float, seen: Callable[[], Site | None]) -> Site | None:
    """The last that is known of where a rank stood: at its last event, or at a heartbeat after that."""
    found = seen()
    newest = next((e.time for e in reversed(run.events[-_MOST_ANSWERS:]) if e.kind != events.STACK), 0.0)
    if found is not None and heartbeat >= newest:
        return found
    last = next((e for e in backwards(run.events) if e.kind != events.STACK and (e.site or e.stack)), None)
    return None if last is None else last.site or last.stack[0]


def _not_left(recorded: Sequence[Event], waits: list[Event]) -> list[Event]:
    """The open collectives of a process that is gone, without those that it had left when it died, before anybody noted it.

    A call that waits has returned when its thread issues another one or, the main thread, enters a forward or leaves a backward;
    so has a bucket. Of what torch issues by itself only buckets and the map of unused parameters are waited for later
    (torch/csrc/distributed/c10d/reducer.cpp), and two broadcasts of a model's state may be under way (comm.cpp, max_in_flight).
    """
    by_thread: dict[int, list[Event]] = {}
    for event in waits:
        by_thread.setdefault(event.detail["thread"], []).append(event)
    forward, backward = last_of(recorded, events.FORWARD), last_of(recorded, events.BACKWARD)
    moved = max(forward.time if forward else 0.0, backward.detail["done"] or 0.0 if backward else 0.0)

    def is_left(event: Event) -> bool:
        thread = event.detail["thread"]
        if event.origin in (events.DDP_BUCKET, events.DDP_UNUSED_MAP):
            return event.time < moved
        if event.origin == events.USER and event.detail["async"]:
            return False
        under_way = 2 if event.origin in (events.DDP_CONSTRUCTOR, events.DDP_BUFFERS) else 1
        return (event.time < moved and thread == 0) or event not in by_thread[thread][-under_way:]

    return [event for event in waits if not is_left(event)]


def _stood(run: RankRun) -> events.Site | None:
    """Where a rank stood when it was asked, if it has issued no collective since."""
    last = next((e for e in backwards(run.events) if e.kind in (events.COLLECTIVE, events.STACK)), None)
    if last is None or last.kind != events.STACK:
        return None
    return last.site or next(iter(last.stack), None)


def _described(event: Event) -> str:
    text = event.what
    if event.kind == events.EXCEPTION:
        text = f"{event.detail['type']}: {event.detail['text']}"
    return f"{text} at {event.site}" if event.site is not None else text
