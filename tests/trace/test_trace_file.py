"""The file of a rank: written by `Ring`, read by the store, live, after a crash, and when damaged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ddp_audit import events
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RUNNING, WAITING, RankRun
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.standing import judge
from ddp_audit.trace.store import FollowRun, TraceError, load_run
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring, is_marked, mark, set_number


def signature(ring: Ring, op: str = "all_reduce", stack: int = 0, **more: object) -> int:
    text: dict[str, object] = {
        "op": op,
        "call": "allreduce_",
        "group": "default",
        "origin": events.USER,
        "numel": 4,
        "dtype": "float32",
        "shape": [[4]],
        "root": None,
        "reduce_op": "sum",
        "async": False,
        "stack": stack,
    }
    return ring.define(layout.SIGNATURE_TEXT, {**text, **more})


def write_event(ring: Ring, kind: str, number: int = 0, value: int = 0, **detail: object) -> tuple[object, int]:
    text = {"kind": kind, "group": "default", "stack": 0, "detail": detail}
    return ring.write_value(0, ring.define(layout.EVENT_TEXT, text), number, time.time(), value)


def begin(folder: Path, rank: int = 0, world_size: int = 1, pid: int | None = None) -> Ring:
    ring = Ring(str(folder / layout.FILE_PATTERN.format(rank)), rank)
    host = os.uname().nodename
    detail = {"rank": rank, "world_size": world_size, "pid": pid or os.getpid(), "host": host, "ticks": 0, "run": "r"}
    write_event(ring, events.START, **detail)
    return ring


def test_what_is_written_is_read(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    stack = ring.define(layout.STACK_TEXT, [["train.py", 7, "step"], ["train.py", 20, "<module>"]])
    place = ring.write(layout.COLLECTIVE, 0, signature(ring, "broadcast", stack, root=1, reduce_op=None), 5, 100.0)
    mark(place, layout.DONE, 101.5)
    ring.write(layout.COLLECTIVE, 3, signature(ring, "send", peer=1), layout.NO_INDEX, 102.0)
    write_event(ring, events.FORWARD, value=0xABCDEF, model="ddp0", grad=True)
    backward = write_event(ring, events.BACKWARD)
    set_number(backward, 3)  # type: ignore[arg-type]
    mark(backward, layout.DONE, 103.0)  # type: ignore[arg-type]

    start, first, send, forward, back = load_run(tmp_path).ranks[0].events
    assert start.kind == events.START
    assert (first.op, first.index, first.root, first.reduce_op, first.numel, first.time) == ("broadcast", 5, 1, None, 4, 100.0)
    assert str(first.site) == "train.py:7"
    assert [str(s) for s in first.stack] == ["train.py:7", "train.py:20"]
    assert first.detail["done"] == 101.5
    assert (send.op, send.index, send.detail["peer"], send.detail["done"], send.detail["thread"]) == ("send", None, 1, None, 3)
    assert forward.detail == {"model": "ddp0", "grad": True, "batch": "0000000000abcdef"}
    assert back.detail["buckets"] == 3


def test_a_live_reader_sees_completion_later(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    place = ring.write(layout.COLLECTIVE, 0, signature(ring), 0, time.time() - 5)
    follow = FollowRun(tmp_path)
    rank = follow.poll().ranks[0]
    assert (rank.state, rank.waiting) == (WAITING, rank.events[1])
    assert rank.last.startswith("waits in all_reduce of 4 float32")
    before = follow.progress
    mark(place, layout.DONE, time.time())
    assert is_marked(place)
    rank = follow.poll().ranks[0]
    assert (rank.state, rank.waiting) == (RUNNING, None)
    assert rank.events[1].detail["done"] is not None
    assert follow.progress > before
    write_event(ring, events.EXIT, code=0)
    run = follow.poll()
    assert (run.ranks[0].state, run.ranks[0].code, run.complete) == (EXITED, 0, True)


def test_progress_counts_each_collective_that_has_returned_once(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    place = ring.write(layout.COLLECTIVE, 0, signature(ring), 0, time.time())
    mark(ring.write(layout.COLLECTIVE, 0, signature(ring), 1, time.time()), layout.DONE, time.time())
    follow = FollowRun(tmp_path)
    follow.poll()
    assert follow.progress == (3, 1)
    mark(place, layout.DONE, time.time())
    follow.poll()
    assert follow.progress == (3, 2)


def test_a_run_that_is_watched_is_read_a_little_of_each_rank_at_a_time(tmp_path: Path) -> None:
    for rank in range(2):
        ring = begin(tmp_path, rank, 2)
        definition = signature(ring)
        for index in range(1500):
            ring.write(layout.COLLECTIVE, 0, definition, index, time.time(), time.time())
    seen: list[list[int]] = []
    follow = FollowRun(tmp_path, consume=lambda run: seen.append([reader.recorded for reader in follow.readers.values()]))
    follow.poll()
    assert seen[-1] == [1501, 1501] and len(seen) > 2
    assert all(abs(first - second) < 700 for first, second in seen)
    at_once = FollowRun(tmp_path)
    assert len(at_once.poll().ranks[0].events) == 1501


def test_where_a_rank_stands_is_looked_for_since_its_last_event() -> None:
    asked: list[float] = []
    run = RankRun(0, [events.Event(events.FORWARD, time=1.0), events.Event(events.FORWARD, time=5.0)])
    judge(run, [], gone=True, exited=False, raised=False, heartbeat=0.0, locked=asked.append)
    assert asked == [5.0]


def test_nobody_waits_in_an_isend_that_has_been_received(tmp_path: Path) -> None:
    """gloo never says that it is done where no one waits for it."""
    first, second = begin(tmp_path, 0, 2), begin(tmp_path, 1, 2)
    sent = signature(first, "send", peer=1, tag=0, **{"async": True})
    first.write(layout.COLLECTIVE, 0, sent, layout.NO_INDEX, time.time() - 7)
    follow = FollowRun(tmp_path)
    for read in (follow.poll, lambda: load_run(tmp_path), lambda: load_columns(tmp_path)[0]):
        rank = read().ranks[0]
        assert (rank.state, rank.waiting, rank.last[:34]) == (WAITING, rank.events[1], "waits in send of 4 float32 to rank")
    received = signature(second, "recv", peer=0, tag=0)
    mark(second.write(layout.COLLECTIVE, 0, received, layout.NO_INDEX, time.time() - 6), layout.DONE, time.time() - 6)
    late = first.write(layout.COLLECTIVE, 0, signature(first), 0, time.time() - 5)
    for read in (follow.poll, lambda: load_run(tmp_path), lambda: load_columns(tmp_path)[0]):
        rank = read().ranks[0]
        assert (rank.state, rank.waiting) == (WAITING, rank.events[2])
    mark(late, layout.DONE, time.time())
    for read in (follow.poll, lambda: load_run(tmp_path), lambda: load_columns(tmp_path)[0]):
        rank = read().ranks[0]
        assert (rank.state, rank.waiting, rank.last) == (RUNNING, None, "all_reduce of 4 float32 (user call)")


def test_records_fill_many_chunks_and_threads_do_not_mix_them(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    definition = signature(ring)

    def write(thread: int) -> None:
        for index in range(20_000):
            ring.write(layout.COLLECTIVE, thread, definition, index, 1.0, 2.0)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Path(ring.path).stat().st_size > layout.CHUNK
    recorded = load_run(tmp_path).ranks[0].events[1:]
    for number in range(3):
        assert [e.index for e in recorded if e.detail["thread"] == number] == list(range(20_000))


def test_a_record_in_flight_holds_a_live_reader_back_and_a_dead_one_not(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    definition = signature(ring)
    ring._place()  # allocated by a thread that has not written yet
    ring.write(layout.COLLECTIVE, 0, definition, 1, time.time())
    assert len(FollowRun(tmp_path).poll().ranks[0].events) == 1
    assert [e.index for e in load_run(tmp_path).ranks[0].events[1:]] == [1]


def test_a_killed_writer_loses_nothing(tmp_path: Path) -> None:
    code = f"""
import os, sys, signal
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
import test_trace_file as t
ring = t.begin(Path({str(tmp_path)!r}))
for index in range(1000):
    ring.write(t.layout.COLLECTIVE, 0, t.signature(ring), index, t.time.time())
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    rank = load_run(tmp_path).ranks[0]
    assert rank.state == KILLED
    assert [e.index for e in rank.events[1:]] == list(range(1000))
    assert rank.waiting is not None and rank.waiting.index == 999  # its thread waits in each: it has left the others


def test_missing_ranks_and_leftovers_of_an_earlier_run(tmp_path: Path) -> None:
    begin(tmp_path, rank=2, world_size=4)
    old = Ring(str(tmp_path / layout.FILE_PATTERN.format(1)), 1)
    layout.F64.pack_into(old._first, 32, 1.0)  # began long ago
    write_event(old, events.START, rank=1, world_size=9, pid=os.getpid(), host="h", ticks=0, run="older")
    run = load_run(tmp_path)
    assert run.world_size == 4
    assert {rank: one.state for rank, one in run.ranks.items()} == {0: MISSING, 1: MISSING, 2: RUNNING, 3: MISSING}


def test_empty_files_are_no_trace(tmp_path: Path) -> None:
    (tmp_path / "rank-00000.ddptrace").write_bytes(b"")
    with pytest.raises(TraceError, match="its files are empty"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"not a trace at all" + data[18:], "not a file of the ddp-audit tracer"),
        (lambda data: data[:40], "truncated"),
        (lambda data: data[:8] + b"\x63\0" + data[10:], "version 99"),
        (lambda data: data[:64] + b"\x77" + data[65:], "damaged at byte 64"),
        (lambda data: data[:64] + bytes(32 * 3) + data[160:], "damaged at byte"),
        (lambda data: data[:76] + b"{]" + data[78:], "damaged at byte"),
        (lambda data: data[:16] + b"\x05" + data[17:], "holds rank 5"),
    ],
)
def test_damage_gives_one_clear_line(tmp_path: Path, damage: object, message: str) -> None:
    ring = begin(tmp_path)
    ring.write(layout.COLLECTIVE, 0, signature(ring), 0, time.time())
    path = Path(ring.path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))  # type: ignore[operator]
    with pytest.raises(TraceError) as caught:
        load_run(tmp_path)
    text = str(caught.value)
    assert message in text
    assert path.name in text
    assert "\n" not in text


def test_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace in it"):
        load_run(tmp_path)
    with pytest.raises(TraceError, match="no such folder"):
        load_run(tmp_path / "nowhere")


def test_a_run_without_its_description_is_read_and_says_so(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / "run.json").write_text("{")
    run = load_run(tmp_path)
    assert 0 in run.ranks and run.damage.startswith("run.json cannot be read")


def test_a_full_file_is_a_ring(tmp_path: Path) -> None:
    ring = Ring(str(tmp_path / "f"), 0, limit=layout.CHUNK)
    for index in range(3 * layout.CHUNK // layout.RECORD_SIZE):
        ring.write(layout.COLLECTIVE, 0, 1, index, 1.0)
    assert Path(ring.path).stat().st_size == layout.FEWEST_CHUNKS * layout.CHUNK


def test_equal_prefixes_have_equal_checks(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    ring.write_check(1024, 2**64 - 1)
    follow = FollowRun(tmp_path)
    follow.poll()
    assert follow.readers[0].checks == {1024: 2**64 - 1}


def test_a_restarted_worker_begins_anew(tmp_path: Path) -> None:
    ring = begin(tmp_path)
    ring.write(layout.COLLECTIVE, 0, signature(ring), 0, time.time())
    follow = FollowRun(tmp_path)
    assert len(follow.poll().ranks[0].events) == 2
    Path(ring.path).replace(f"{ring.path}.0")
    again = begin(tmp_path)
    layout.U32.pack_into(again._first, 20, 1)  # another pid
    assert [e.kind for e in follow.poll().ranks[0].events] == [events.START]


@pytest.mark.parametrize("after", ["another call", "the next forward", "nothing"])
def test_what_a_dead_rank_had_left(tmp_path: Path, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody noted its collectives as returned, since all happened between two looks; what came after them shows which had."""
    monkeypatch.setattr("ddp_audit.trace.rank_file.is_gone", lambda *process: True)
    ring = begin(tmp_path)
    ring.write(layout.COLLECTIVE, 0, signature(ring, "broadcast", origin=events.DDP_CONSTRUCTOR, **{"async": True}), 0, 10.0)
    write_event(ring, events.FORWARD, value=1, model="ddp0", grad=True)
    ring.write(layout.COLLECTIVE, 1, signature(ring, origin=events.DDP_BUCKET, **{"async": True}), 1, time.time())
    if after == "the next forward":
        write_event(ring, events.FORWARD, value=1, model="ddp0", grad=True)
    elif after == "another call":
        backward = write_event(ring, events.BACKWARD)
        set_number(backward, 1)  # type: ignore[arg-type]
        mark(backward, layout.DONE, time.time())  # type: ignore[arg-type]
        ring.write(layout.COLLECTIVE, 0, signature(ring), 2, time.time())
    waiting = load_run(tmp_path).ranks[0].waiting
    expected = {"another call": 2, "the next forward": None, "nothing": 1}[after]
    assert (waiting and waiting.index) == expected


def test_two_broadcasts_of_buffers_may_be_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddp_audit.trace.rank_file.is_gone", lambda *process: True)
    ring = begin(tmp_path)
    for index in range(3):
        broadcast = signature(ring, "broadcast", origin=events.DDP_BUFFERS, **{"async": True})
        ring.write(layout.COLLECTIVE, 0, broadcast, index, time.time())
    waiting = load_run(tmp_path).ranks[0].waiting
    assert waiting is not None and waiting.index == 1


def test_a_trace_of_the_first_version_is_read(tmp_path: Path) -> None:
    """It has neither checks nor a ring."""
    records = b""

    def define(what: int, number: int, value: object) -> None:
        nonlocal records
        data = json.dumps(value).encode()
        parts = -(-len(data) // layout.FRAGMENT_TEXT)
        for part in range(parts):
            piece = data[part * layout.FRAGMENT_TEXT : (part + 1) * layout.FRAGMENT_TEXT]
            records += layout.FRAGMENT.pack(layout.DEFINITION, what, part, number, parts, len(piece), piece)

    start = {"rank": 0, "world_size": 1, "pid": 1, "host": "elsewhere", "ticks": 0, "run": "r"}
    define(layout.EVENT_TEXT, 1, {"kind": "start", "group": "default", "stack": 0, "detail": start})
    records += layout.VALUE_RECORD.pack(layout.EVENT, 0, 0, 1, 0, 0, 1.0, 0)
    text = {"op": "all_reduce", "call": "x", "group": "default", "origin": "user", "numel": 4, "dtype": "float32", "shape": [[4]]}
    define(layout.SIGNATURE_TEXT, 2, {**text, "root": None, "reduce_op": "sum", "async": False, "stack": 0})
    for index in range(3):
        records += layout.RECORD.pack(layout.COLLECTIVE, layout.DONE, 0, 2, index, 0, 2.0, 3.0)
    head = layout.HEADER.pack(layout.MAGIC, 1, layout.RECORD_SIZE, layout.CHUNK, 0, 1, 4.0, 1.0)
    (tmp_path / "rank-00000.ddptrace").write_bytes((head + records).ljust(layout.CHUNK, b"\0"))
    for run in (load_run(tmp_path), load_columns(tmp_path)[0]):
        assert [event.index for event in run.ranks[0].events if event.kind == events.COLLECTIVE] == [0, 1, 2]
        assert run.ranks[0].damage == ""


@pytest.mark.parametrize("key", ["world_size", "pid", "host", "run"])
def test_a_start_that_leaves_open_what_it_must_say_is_damaged(tmp_path: Path, key: str) -> None:
    ring = Ring(str(tmp_path / "rank-00000.ddptrace"), 0)
    said: dict[str, object] = {"rank": 0, "world_size": 2, "pid": os.getpid(), "host": "h", "ticks": 0, "run": "r"}
    write_event(ring, events.START, **{**said, key: None})
    with pytest.raises(TraceError, match="damaged"):
        load_run(tmp_path)
