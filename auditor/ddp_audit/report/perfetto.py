"""A run in the Chrome trace event format, which ui.perfetto.dev opens: a process a rank, a thread a group."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, Any

from ddp_audit.compare.explain import frames, name
from ddp_audit.compare.group_names import group_text
from ddp_audit.compare.sequence import Divergence
from ddp_audit.events import BACKWARD, COLLECTIVE, START, Event
from ddp_audit.report.selection import Selection

MOST = 400_000  # events of one export
_STEPS = 0  # the thread of what is not a collective
Meetings = dict[tuple[str, int, int], list[tuple[float, int, int]]]  # group, life, index -> when, rank, thread of each side
_THREADS = 100_000  # numbers between two threads of a rank; more than ranks


def write(selection: Selection, stream: IO[str]) -> None:
    """Writes the events of a selection, one a line."""
    stream.write('{"displayTimeUnit": "ms", "otherData": ' + json.dumps({"made by": "ddp-audit", "left out": selection.note()}))
    stream.write(', "traceEvents": [\n')
    for number, event in enumerate(_events(selection)):
        stream.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False))
    stream.write("\n]}\n")


def _events(selection: Selection) -> Iterator[dict[str, Any]]:
    first = min((e.time for rank in selection.ranges for e in selection.events(rank)[:1]), default=0.0)
    last = max((_end(e) for rank in selection.ranges for e in selection.events(rank)[-1:]), default=first)
    meetings: Meetings = {}
    for rank in selection.ranges:
        yield from _rank(selection, rank, first, last, meetings)
    yield from _arrows(meetings)
    if selection.apart is not None:
        yield from _marks(selection, selection.apart, first)


def _at(rank: int, thread: int = _STEPS) -> dict[str, int]:
    """Process and thread. Perfetto keeps process 0 and thread 0 for the idle task, and looks for threads by their number alone
    before it asks for the process: numbers begin at 1, and no two threads share one (the main thread has that of its process)."""
    return {"pid": rank + 1, "tid": thread * _THREADS + rank + 1}


def _arrows(meetings: Meetings) -> Iterator[dict[str, Any]]:
    """Arrows between the sides of each collective, from the rank that came first over the others to the last."""
    for number, sides in enumerate(meetings.values(), 1):
        sides.sort()
        for place, (when, rank, thread) in enumerate(sides if len(sides) > 1 else ()):
            kind = "s" if place == 0 else "f" if place == len(sides) - 1 else "t"
            arrow = {"ph": kind, "id": number, **_at(rank, thread), "ts": when, "name": "meets", "cat": "meeting"}
            yield {**arrow, "bp": "e"} if kind == "f" else arrow


def _rank(selection: Selection, rank: int, first: float, last: float, meetings: Meetings) -> Iterator[dict[str, Any]]:
    state = selection.run.ranks[rank].state
    yield {"ph": "M", **_at(rank), "name": "process_name", "args": {"name": f"rank {rank} ({state})"}}
    yield {"ph": "M", **_at(rank), "name": "process_sort_index", "args": {"sort_index": rank}}
    yield {"ph": "M", **_at(rank), "name": "thread_name", "args": {"name": "steps"}}
    threads: dict[str, int] = {}
    lives: dict[str, tuple[int, int]] = {}  # group -> how many of the name were there before, and its newest index
    free: dict[int, float] = {}  # when a thread's last bar ends: a group carries out one collective after the other
    for event in selection.events(rank):
        if event.kind != COLLECTIVE:
            if event.kind != START:
                yield _step(event, rank, first, last)
            continue
        thread = threads.get(event.group)
        if thread is None:
            thread = threads[event.group] = len(threads) + 1
            group = group_text(event.group, selection.run.called)
            yield {"ph": "M", **_at(rank, thread), "name": "thread_name", "args": {"name": group}}
        done = event.detail.get("done")
        begin = max(event.time, free.get(thread, 0.0))
        end = max(begin, last if done is None else done)
        free[thread] = end
        if event.index is not None:
            life, newest = lives.get(event.group, (0, -1))
            life += event.index <= newest  # a new group of the old name
            lives[event.group] = life, event.index
            meetings.setdefault((event.group, life, event.index), []).append((_us(begin - first), rank, thread))
        bar = {"ph": "X", **_at(rank, thread), "ts": _us(begin - first), "dur": _us(end - begin), "name": name(event)}
        bar.update(cat=event.origin, args=_arguments(event))
        if selection.is_apart(event):
            bar.update(cname="terrible", cat=f"{event.origin},divergence")
        elif done is None:
            bar["cname"] = "bad"
        yield bar


def _step(event: Event, rank: int, first: float, last: float) -> dict[str, Any]:
    where = {"site": str(event.site)} if event.site is not None else {}
    out: dict[str, Any] = {**_at(rank), "ts": _us(event.time - first), "name": event.kind, "cat": "step"}
    if event.kind == BACKWARD:
        done = event.detail.get("done")
        out.update(ph="X", dur=_us((last if done is None else done) - event.time))
    else:
        out.update(ph="i", s="t")
    out["args"] = {**where, **{key: value for key, value in event.detail.items() if isinstance(value, (str, int, float, bool))}}
    return out


def _arguments(event: Event) -> dict[str, Any]:
    out: dict[str, Any] = {"index": event.index, "op": event.op, "numel": event.numel, "dtype": event.dtype}
    out.update({"root": event.root} if event.root is not None else {})
    out.update({"reduce_op": event.reduce_op} if event.reduce_op is not None else {})
    out["stack"] = [f"{site} {site.function}".rstrip() for site in frames(event)]
    out["returned"] = event.detail.get("done") is not None
    return out


def _marks(selection: Selection, apart: Divergence, first: float) -> Iterator[dict[str, Any]]:
    """A line over all ranks where they diverge, and a mark in each rank that has a part in it."""
    times = []
    for rank in selection.ranges:
        for event in selection.events(rank):
            if selection.is_apart(event):
                times.append(event.time)
                yield {
                    "ph": "i", "s": "p", **_at(rank), "ts": _us(event.time - first), "cat": "divergence",
                    "name": f"parts here: {name(event)}", "args": {"odd": rank in apart.odd},
                }  # fmt: skip
                break
    if times:
        place = f"collective {apart.index}"
        if apart.message is not None:
            place = f"message {apart.index} from rank {apart.message[0]} to rank {apart.message[1]}"
        title = f"divergence ({apart.kind}) in {place} of {apart.group_text()}"
        mark = {
            "ph": "i",
            "s": "g",
            **_at(min(selection.ranges)),
            "ts": _us(min(times) - first),
            "name": title,
            "cat": "divergence",
        }
        yield {**mark, "args": {"explanation": apart.explanation}}


def _end(event: Event) -> float:
    done = event.detail.get("done")
    return event.time if not isinstance(done, (int, float)) else max(event.time, done)


def _us(seconds: float) -> float:
    return round(max(0.0, seconds) * 1e6, 3)
