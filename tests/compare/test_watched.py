"""A run that is watched is forgotten as it goes on: the memory is that of its newest events, and what parts is told all the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import events
from ddp_audit.compare import recent
from ddp_audit.compare.live import LiveComparison
from ddp_audit.compare.recent import RecentEvents
from ddp_audit.compare.run import backwards, last_of, tally
from ddp_audit.events import Event
from ddp_audit.trace.store import FollowRun
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring, mark

STEPS = 1500  # about 15,000 records a rank: many parts of a file as the watcher reads it


class Worker:
    """Writes the steps of one of `world` ranks."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.ring = Ring(str(folder / layout.FILE_PATTERN.format(rank)), rank)
        self.rank, self.world = rank, world
        self.index = 0
        self.now = 1_000.0
        start = {"rank": rank, "world_size": world, "pid": 1, "host": "elsewhere", "ticks": 0, "run": "r"}
        self.event(events.START, **start)
        self.event(events.GROUP, action="init", name="default", ranks=list(range(world)), backend="gloo")

    def event(self, kind: str, **detail: Any) -> None:
        definition = self.ring.define(layout.EVENT_TEXT, {"kind": kind, "group": "default", "stack": 0, "detail": detail})
        self.now += 0.001
        self.ring.write_value(0, definition, 0, self.now, 0)

    def call(self, op: str, line: int, numel: int = 4, done: bool = True, **more: Any) -> None:
        stack = self.ring.define(layout.STACK_TEXT, [["train.py", line, "step"]])
        text = {"op": op, "call": "x", "group": "default", "origin": events.USER, "numel": numel, "dtype": "float32"}
        text |= {"shape": [[numel]], "root": None, "reduce_op": None, "async": False, "stack": stack, **more}
        message = op in events.POINT_TO_POINT
        index = layout.NO_INDEX if message else self.index
        self.index += not message
        self.now += 0.001
        place = self.ring.write(layout.COLLECTIVE, 0, self.ring.define(layout.SIGNATURE_TEXT, text), index, self.now)
        if done:
            mark(place, layout.DONE, self.now)

    def step(self) -> None:
        self.event(events.FORWARD, model="ddp0", grad=True)
        for line in (1, 2, 3, 4):
            self.call("all_reduce", line)
        if self.rank == 0:
            self.call("send", 5, peer=1, tag=0)
        elif self.rank == 1:
            self.call("recv", 6, peer=0, tag=0)


def watched(folder: Path) -> tuple[LiveComparison, FollowRun]:
    live = LiveComparison(patience=0)
    return live, FollowRun(folder, consume=live.take)


@pytest.mark.parametrize("what", ["nothing", "size", "operation", "message", "waits"])
def test_what_parts_late_is_told_and_the_rest_forgotten(tmp_path: Path, what: str) -> None:
    workers = [Worker(tmp_path, rank, 3) for rank in range(3)]
    live, follow = watched(tmp_path)
    for step in range(STEPS):
        for worker in workers:
            worker.step()
        if step == STEPS // 2:
            assert live.update(follow.poll()) == []
    for worker in workers[:1] if what == "operation" else workers:
        odd = worker.rank == 1
        if what in ("size", "operation"):
            worker.call("broadcast" if what == "operation" else "all_reduce", 9, 5 if odd else 4, root=None)
        elif what == "message" and worker.rank < 2:
            worker.call("recv" if odd else "send", 9, 7 if odd else 4, peer=1 - worker.rank, tag=0)
        elif what == "waits" and worker.rank < 2:
            worker.call("recv", 9, done=False, peer=1 - worker.rank, tag=0)
    for worker in workers if what != "waits" else ():
        worker.step()
    run = follow.poll()
    told = live.update(run)
    assert [one.kind for one in told] == {"nothing": [], "size": ["size"], "operation": ["operation"], "message": ["size"]}.get(
        what, ["order"]
    )
    if what in ("size", "operation"):
        assert told[0].index == STEPS * 4
        assert "train.py:9" in told[0].explanation
    if what == "message":
        assert told[0].index == STEPS
    for one in run.ranks.values():
        assert len(one.events) > 5 * STEPS
        assert sum(1 for _ in one.events) < 3 * recent.KEPT
        assert one.events[0].kind == events.START
    aligner = live._feed(run)
    assert all(len(found) < 1000 for group in aligner.groups.values() for found in group.entries.values())


def test_a_rank_that_is_never_seen_keeps_nothing_in_memory(tmp_path: Path) -> None:
    """As with a folder on each of two nodes: the other node's ranks are in none of this one's files."""
    workers = [Worker(tmp_path, rank, 4) for rank in range(2)]
    live, follow = watched(tmp_path)
    for _ in range(3 * STEPS):
        for worker in workers:
            worker.step()
    run = follow.poll()
    assert live.update(run) == []
    (group,) = live._feed(run).groups.values()
    assert all(len(found) < 5_000 for found in group.entries.values())
    assert len(group.rows) < 5_000


def test_forgotten_events_are_counted_and_cannot_be_asked_for() -> None:
    held, everything = RecentEvents(), []
    chance = random.Random(5)
    for number in range(300):
        kind = chance.choice([events.COLLECTIVE, events.FORWARD, events.GROUP if number % 40 == 0 else events.STEP])
        event = Event(kind, index=number)
        held.append(event)
        everything.append(event)
        held.forget({7, 50}, kept=10)
    assert len(held) == 300
    assert held.forgotten == 300 - len(list(held)) > 200
    assert held[7] == everything[7]
    assert held[-10:] == everything[-10:]
    assert held[299] == everything[299]
    with pytest.raises(IndexError):
        held[51]
    for kind in (events.COLLECTIVE, events.FORWARD, events.GROUP):
        assert sum(count for _, count in tally(held, kind)) == sum(event.kind == kind for event in everything)
        assert last_of(held, kind) == next(event for event in reversed(everything) if event.kind == kind)
    assert next(backwards(held)) == everything[-1]
    changed = Event(events.STEP, index=-1)
    for position in (7, 51, 299):
        held.replace(position, changed)
    assert (held[7], held[299]) == (changed, changed)
