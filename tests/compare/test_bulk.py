"""The comparison in bulk comes to what the plain one comes to: random small runs, written by the tracer's own writer."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddp_audit import events
from ddp_audit.compare.bulk import Places, aligned
from ddp_audit.compare.run import RecordedRun, backwards, last_issued, last_of, of_kinds, tally
from ddp_audit.compare.verdict import Comparison, compare_run
from ddp_audit.report.trace_json import as_object
from ddp_audit.report.trace_text import render
from ddp_audit.trace.columns import LateEvents, load_columns
from ddp_audit.trace.store import load_run
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring, mark, set_number

GROUPS = {"default": None, "a": (0, 1), "b": (0, 1, 2)}


class RankWriter:
    """Writes what a rank of a drawn run does."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        self.ring = Ring(str(folder / layout.FILE_PATTERN.format(rank)), rank)
        self.rank = rank
        self.indices: dict[str, int] = {}
        self.now = 1000.0 + rank / 10
        start = {"rank": rank, "world_size": world, "pid": 1, "host": "elsewhere", "ticks": 0, "run": "r"}
        self.event(events.START, {**start, "argv": [], "torch": "2.13", "python": "3.11"})
        told = {"action": "init", "name": "default", "ranks": layout.pack_ranks(range(world)), "backend": "gloo"}
        self.event(events.GROUP, told)

    def stack(self, lines: tuple[int, ...]) -> int:
        sites = [["train.py", line, f"f{place}"] for place, line in enumerate(lines)]
        return self.ring.define(layout.STACK_TEXT, sites) if lines else 0

    def event(self, kind: str, detail: dict[str, Any], lines: tuple[int, ...] = (), value: int = 0, number: int = 0) -> None:
        text = {"kind": kind, "group": "default", "stack": self.stack(lines), "detail": detail}
        self.now += 0.5
        is_backward = kind == events.BACKWARD
        place = self.ring.write_value(0, self.ring.define(layout.EVENT_TEXT, text), 0 if is_backward else number, self.now, value)
        if is_backward and number != 3:
            set_number(place, number)
            mark(place, layout.DONE, self.now)

    def collective(self, call: dict[str, Any], *, done: bool = True, skip: int = 0) -> None:
        text = {"call": "x", "shape": [], "async": False, **{k: v for k, v in call.items() if k != "lines"}}
        if text["op"] in events.POINT_TO_POINT:
            index = layout.NO_INDEX
            text |= {"peer": text["root"], "tag": 0, "async": len(call["lines"]) < 2, "root": None}
        else:
            index = self.indices[text["group"]] = self.indices.get(text["group"], -1) + 1 + skip
        definition = self.ring.define(layout.SIGNATURE_TEXT, {**text, "stack": self.stack(call["lines"])})
        self.now += 0.5
        place = self.ring.write(layout.COLLECTIVE, 0, definition, index, self.now)
        if done:
            mark(place, layout.DONE, self.now)
        if index % 5 == 4 and index != layout.NO_INDEX:
            self.ring.write_check(index, 7)


def calls() -> st.SearchStrategy[dict[str, Any]]:
    origins = [events.USER, events.USER, events.DDP_BUFFERS, events.DDP_BUCKET, events.DDP_JOIN, events.OBJECT]
    return st.fixed_dictionaries(
        {
            "op": st.sampled_from(["all_reduce", "all_reduce", "broadcast", "barrier", "scatter", "all_to_all", "send", "recv"]),
            "group": st.sampled_from(["default", "default", "default", "a", "b"]),
            "origin": st.sampled_from(origins),
            "numel": st.sampled_from([None, 4, 4, 4, 5]),
            "dtype": st.sampled_from(["float32", "float32", "int64", None]),
            "root": st.sampled_from([None, 0, 0, 1]),
            "reduce_op": st.sampled_from([None, "sum", "sum", "max"]),
            "lines": st.sampled_from([(10, 30), (11, 30), (12, 31), (13,), ()]),
        }
    )


def others() -> st.SearchStrategy[tuple[str, dict[str, Any], int]]:
    hashes = st.integers(0, 2)
    return st.one_of(
        st.builds(lambda grad, v: (events.FORWARD, {"model": "ddp0", "grad": grad, "sync": True}, v), st.booleans(), hashes),
        st.builds(lambda bad: (events.STEP, {"optimizer": "SGD", "models": ["ddp0"], "unreduced": bad}, 0), st.booleans()),
        st.builds(lambda v: (events.PARAMETERS, {"model": "ddp0", "at": "step"}, v), hashes),
        st.just((events.BACKWARD, {}, 0)),
        st.just((events.WRAP, {"model": "ddp0", "group": "default", "parameters": [], "buffers": [], "frozen": 0}, 0)),
        st.builds(lambda e: (events.SAMPLER, {"action": "iter", "epoch": e, "replicas": 2, "shuffle": True}, 0), st.integers(0, 1)),
        st.just((events.STACK, {"request": 5}, 0)),
        st.just((events.SEED, {"seed": 3}, 0)),
    )


# What ranks do, as a common program and each rank's changes of it: (place, what happens there).
CHANGES = st.lists(st.tuples(st.integers(0, 25), st.sampled_from(["drop", "double", "swap", "other", "skip"]), calls()), max_size=2)
ENDS = st.sampled_from(["exit", "exit", "exit", "killed", "raised", "waits", "failed"])


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[list[Any]], list[str]]:
    items = st.one_of(calls(), calls(), others())
    program = draw(st.lists(items, min_size=1, max_size=25))
    ranks = []
    ends = []
    for _ in range(draw(st.integers(2, 4))):
        own: list[Any] = list(program)
        for place, what, call in draw(CHANGES):
            at = place % max(1, len(own))
            if what == "drop":
                del own[at : at + 1]
            elif what == "double":
                own.insert(at, own[at] if own else call)
            elif what == "swap":
                own[at : at + 2] = reversed(own[at : at + 2])
            elif what == "skip":
                own.insert(at, "skip")
            else:
                own.insert(at, call)
        ranks.append(own)
        ends.append(draw(ENDS))
    return ranks, ends


def write(folder: Path, drawn: tuple[list[list[Any]], list[str]]) -> None:
    ranks, ends = drawn
    for rank, (items, end) in enumerate(zip(ranks, ends, strict=True)):
        writer = RankWriter(folder, rank, len(ranks))
        for name, members in GROUPS.items():
            if members is not None and rank in members:
                writer.event(events.GROUP, {"action": "seen", "name": name, "ranks": list(members)})
        skip = 0
        for number, item in enumerate(items):
            if item == "skip":
                skip = 1
            elif isinstance(item, dict):
                if rank not in (GROUPS[item["group"]] or range(len(ranks))):
                    continue  # torch gives a group to its members only
                writer.collective(item, done=end not in ("waits", "failed") or number < len(items) - 2, skip=skip)
                skip = 0
            else:
                kind, detail, value = item
                writer.event(kind, detail, (40,) if kind == events.STEP else (41, 42), value, number % 4)
        if end == "exit":
            writer.event(events.EXIT, {"code": 0})
        elif end in ("raised", "failed"):
            text = "bad value" if end == "raised" else "[pair.cc:553] Connection closed by peer"
            writer.event(events.EXCEPTION, {"type": "RuntimeError", "text": text})
        writer.ring.close()


def plain(folder: Path) -> tuple[RecordedRun, Comparison]:
    run = load_run(folder)
    return run, compare_run(run, root=folder)


def bulk(folder: Path) -> tuple[RecordedRun, Comparison]:
    run, places = load_columns(folder)
    return run, compare_run(run, aligner=aligned(run, places), root=folder)


def same(folder: Path) -> None:
    # At one moment, for whether a rank still shows life depends on it.
    with mock.patch("time.time", return_value=time.time()):
        run, comparison = plain(folder)
        late, found = bulk(folder)
    assert json.dumps(as_object(found)) == json.dumps(as_object(comparison))
    assert render(found) == render(comparison)
    assert found.exit_code == comparison.exit_code
    for rank, one in run.ranks.items():
        other = late.ranks[rank]
        assert list(other.events) == list(one.events)
        assert [other.events[position] for position in range(len(one.events))] == list(one.events)
        assert replace(other, events=[]) == replace(one, events=[])
    assert (late.groups, late.world_size, late.complete, late.meta) == (run.groups, run.world_size, run.complete, run.meta)


@given(runs())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_runs_come_to_the_same(drawn: tuple[list[list[Any]], list[str]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bulk"))
    try:
        write(folder, drawn)
        same(folder)
        run = load_run(folder)  # and columns of events that are all there
        comparison = compare_run(run, aligner=aligned(run, Places()), root=folder)
        assert json.dumps(as_object(comparison)) == json.dumps(as_object(plain(folder)[1]))
    finally:
        shutil.rmtree(folder)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[list[list[Any]], list[str]]:
    """Messages between three ranks, of which some rank may lack one or have one that does not fit."""
    pairs = st.sampled_from([(0, 1), (1, 0), (0, 1), (1, 2), (2, 0)])
    program = draw(st.lists(st.tuples(pairs, st.sampled_from([4, 4, 5]), st.sampled_from([5, 6])), min_size=1, max_size=12))
    ranks: list[list[Any]] = [[], [], []]
    for (source, target), numel, line in program:
        lines = (line,) if line == 5 else (line, 30)
        ranks[source].append(call("send", root=target, numel=numel, lines=lines))
        ranks[target].append(call("recv", root=source, numel=numel, lines=(line + 10, 30)))
    for own in ranks:
        at = draw(st.integers(0, 30))
        change = draw(st.sampled_from(["none", "none", "drop", "size", "wait", "again"]))
        if change == "drop":
            del own[at % 12 : at % 12 + 1]
        elif change == "size" and own:
            own[at % len(own)] = own[at % len(own)] | {"numel": 6}
        elif change == "wait":
            own.append(call())
        elif change == "again":
            own.insert(at, (events.GROUP, {"action": "init", "name": "default", "ranks": [0, 1, 2], "backend": "gloo"}, 0))
    return ranks, [draw(ENDS) for _ in ranks]


@given(exchanges())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_messages_come_to_the_same(drawn: tuple[list[list[Any]], list[str]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="bulk"))
    try:
        write(folder, drawn)
        same(folder)
    finally:
        shutil.rmtree(folder)


def call(op: str = "barrier", line: int = 3, **fields: Any) -> dict[str, Any]:
    known = {"op": op, "group": "default", "origin": "user", "numel": 4, "dtype": "float32", "root": None, "reduce_op": None}
    return {**known, "lines": (line, 30), **fields}


def test_ranks_that_meet_from_different_places(tmp_path: Path) -> None:
    """Again and again, and in forwards with and without gradients from one line."""
    buffers = call("broadcast", 8, origin=events.DDP_BUFFERS, root=0)
    graded, bare = ((events.FORWARD, {"model": "ddp0", "grad": grad}, 1) for grad in (True, False))
    sums = [call("all_reduce", line, reduce_op="sum") for line in (5, 6)]
    write(tmp_path, ([[graded, buffers, *sums] * 9, [bare, buffers, *sums[::-1]] * 9, [graded, buffers, *sums] * 9], ["exit"] * 3))
    same(tmp_path)
    crossed = bulk(tmp_path)[1].crossed
    assert [(one.index, one.count) for one in crossed] == [(0, 9), (1, 18)]


def test_events_are_looked_through_as_a_list_of_them_is(tmp_path: Path) -> None:
    graded, bare = ((events.FORWARD, {"model": "ddp0", "grad": grad, "sync": True}, 3 * grad) for grad in (True, False))
    step = (events.STEP, {"optimizer": "SGD", "models": ["ddp0"], "unreduced": False}, 0)
    program: list[Any] = [(events.SEED, {"seed": 3}, 0)]
    for number in range(12):  # with definitions among the records, and more events than are kept
        sampler = (events.SAMPLER, {"action": "iter", "epoch": number, "replicas": 2, "shuffle": True}, 0)
        program += [sampler, graded, call("all_reduce", 5 + number, reduce_op="sum"), (events.BACKWARD, {}, 0), step, bare, call()]
    write(tmp_path, ([program, program], ["exit", "killed"]))
    run, late = load_run(tmp_path), load_columns(tmp_path)[0]
    for rank in (0, 1):
        listed, looked = list(run.ranks[rank].events), late.ranks[rank].events
        assert isinstance(looked, LateEvents) and len(looked) == len(listed) > 80
        for part in (
            slice(1, 70),
            slice(None, None, -2),
            slice(2, None, 3),
            slice(None, 1),
            slice(5, 2),
            slice(-9, None),
            slice(None),
        ):
            assert looked[part] == listed[part]
        for place in [*range(len(listed)), *range(-1, -len(listed) - 1, -1)]:
            assert looked[place] == listed[place]
        for outside in (len(listed), -len(listed) - 1):
            with pytest.raises(IndexError):
                looked[outside]
        assert [event.kind for event in backwards(looked)] == [event.kind for event in listed[::-1]]
        assert last_issued(looked) == last_issued(listed) is not None
        for kind in sorted({event.kind for event in listed} | {events.SAVE}):
            kinds = {kind, events.STEP}
            assert list(of_kinds(looked, *kinds)) == [event for event in listed if event.kind in kinds]
            assert sum(count for _, count in tally(looked, kind)) == sum(event.kind == kind for event in listed)
            known = [last_of(looked, kind), last_of(listed, kind)]
            assert [one and (one.kind, one.detail) for one in known] == [known[1] and (kind, known[1].detail)] * 2
        for kind in ("ddp0", "ddp1"):
            assert (kind in looked.trained()) is (kind == "ddp0")
        first, batches = looked.trained()["ddp0"]
        assert first.kind == events.FORWARD and first.detail["grad"]
        assert list(batches) == [3] * 12
        assert [(event.detail["epoch"], held) for event, held in looked.epochs()] == [(number, [3]) for number in range(12)]
        for place in range(len(listed)):
            before = next((one for one in reversed(listed[:place]) if one.kind == events.FORWARD), None)
            found = looked.forward_before(place)
            assert (found and found.detail["grad"]) == (before and before.detail["grad"])


def test_interleaved_definitions_are_left_to_the_plain_reader(tmp_path: Path) -> None:
    """Two threads define at once: the parts of one definition stand among those of the other."""
    write(tmp_path, ([[], []], ["exit", "exit"]))
    path = tmp_path / "rank-00001.ddptrace"
    data = bytearray(path.read_bytes())
    at = layout.HEADER.size
    parts = layout.FRAGMENT.unpack_from(data, at)[4]
    first = data[at : at + 32]
    second = data[at + 32 * parts : at + 32 * (parts + 1)]
    assert second[0] != layout.DEFINITION  # the START event
    data[at : at + 64] = data[at + 32 : at + 64] + first  # parts out of order
    path.write_bytes(data)
    same(tmp_path)


@pytest.mark.parametrize("place", ["kind", "definition", "cut", "magic"])
def test_damage_is_told_in_the_same_words(tmp_path: Path, place: str) -> None:
    write(tmp_path, ([[call()], [call()]], ["exit", "exit"]))
    path = tmp_path / "rank-00001.ddptrace"
    data = bytearray(path.read_bytes())
    at = next(o for o in range(layout.HEADER.size, len(data), 32) if data[o] == layout.COLLECTIVE)
    if place == "kind":
        data[at] = 9
    elif place == "definition":
        data[at + 4 : at + 8] = (500).to_bytes(4, "little")
    elif place == "cut":
        del data[at + 5 :]
    else:
        data[3:6] = b"xyz"
    path.write_bytes(data)
    said = []
    for run in (load_run(tmp_path), load_columns(tmp_path)[0]):
        said.append(run.ranks[1].damage)
    assert said[0] == said[1] != ""


def test_ranks_of_one_shape_share_their_columns(tmp_path: Path) -> None:
    write(tmp_path, ([[call()] * 20] * 4, ["exit"] * 4))
    run, _ = load_columns(tmp_path)
    first, second = (run.ranks[rank].events for rank in (0, 1))  # which are in the same groups
    assert isinstance(first, LateEvents) and isinstance(second, LateEvents)
    assert first.shape is second.shape


def test_ranks_of_groups_are_read_in_both_forms(tmp_path: Path) -> None:
    """Evenly spaced ranks are written as a range; earlier versions wrote them all."""
    assert layout.pack_ranks(range(0, 64, 8)) == {"range": [0, 64, 8]}
    assert layout.pack_ranks([0, 1, 2, 5, 6]) == [0, 1, 2, 5, 6]
    for number, ranks in enumerate(([*range(64)], layout.pack_ranks(range(64)))):
        folder = tmp_path / str(number)
        folder.mkdir()
        writer = RankWriter(folder, 0, 64)
        writer.event(events.GROUP, {"action": "seen", "name": "all", "ranks": ranks})
        writer.ring.close()
        for run in (load_run(folder), load_columns(folder)[0]):
            assert run.groups["all"] == tuple(range(64))
            assert next(event.detail["ranks"] for _, event in run.events_of(events.GROUP) if event.detail["name"] == "all") == [
                *range(64)
            ]
