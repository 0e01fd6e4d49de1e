"""A trace file at its limit goes on as a ring: the newest records are there, read alike by all readers, and rings are compared."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import events
from ddp_audit.cli import main
from ddp_audit.compare.run import RankRun, RecordedRun
from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import Event
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.store import FollowRun, load_run
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring, is_marked, mark

MB = layout.CHUNK
STEP = 5  # records of a step


class Writer:
    """Writes the steps of one rank, with its definitions written again where a new part of the ring begins."""

    def __init__(self, folder: Path, rank: int, world: int = 2, limit: int = 3 * MB) -> None:
        self.ring = Ring(str(folder / layout.FILE_PATTERN.format(rank)), rank, limit)
        self.index = 0
        self.segment = 0
        self.now = 1_000.0
        self.known: dict[str, int] = {}
        start = {"rank": rank, "world_size": world, "pid": 1, "host": "elsewhere", "ticks": 0, "run": "r"}
        self.event(events.START, **start, argv=[], torch="2.13", python="3.11")
        self.event(events.GROUP, action="init", name="default", ranks=list(range(world)), backend="gloo")

    def event(self, kind: str, **detail: Any) -> None:
        definition = self.ring.define(layout.EVENT_TEXT, {"kind": kind, "group": "default", "stack": 0, "detail": detail})
        self.ring.write_value(0, definition, 0, self.now, 0)

    def call(self, op: str, line: int, done: bool = True, **more: Any) -> Any:
        self.now += 0.001
        known = self.known.get(f"{op} {line}")
        if known is None:
            known = self.known[f"{op} {line}"] = self.signature(op, line, more)
        place = self.ring.write(layout.COLLECTIVE, 0, known, self.index, self.now)
        self.index += 1
        if done:
            mark(place, layout.DONE, self.now)
        return place

    def signature(self, op: str, line: int, more: dict[str, Any]) -> int:
        stack = self.ring.define(layout.STACK_TEXT, [["train.py", line, "step"]])
        text = {"op": op, "call": "x", "group": "default", "origin": events.USER, "numel": 4, "dtype": "float32", "shape": [[4]]}
        text |= {"root": None, "reduce_op": None, "async": False, "stack": stack, **more}
        return self.ring.define(layout.SIGNATURE_TEXT, text)

    def steps(self, count: int) -> None:
        for _ in range(count):
            if self.ring.segment != self.segment:
                self.segment = self.ring.segment
                self.ring.forget_definitions()
                self.known.clear()
            self.event(events.FORWARD, model="ddp0", grad=True)
            for line in range(1, STEP):
                self.call("all_reduce", line)


def both(folder: Path) -> list[RecordedRun]:
    return [load_run(folder), load_columns(folder)[0]]


def kept(run: RecordedRun, rank: int = 0) -> list[int]:
    return [event.index for event in run.ranks[rank].events if event.kind == events.COLLECTIVE and event.index is not None]


def test_the_newest_records_are_there_and_the_start_of_the_run(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, world=1)
    writer.steps(25_000)
    writer.event(events.EXIT, code=0)
    assert Path(writer.ring.path).stat().st_size == 3 * MB
    for run in both(tmp_path):
        rank = run.ranks[0]
        found = kept(run)
        assert found == list(range(found[0], writer.index))
        assert len(found) > 25_000
        assert (rank.lost, rank.damage, rank.state, run.world_size) == (True, "", "exited", 1)
        assert [event.kind for event in rank.events][:2] == [events.START, events.GROUP]
        assert rank.since == next(event.time for event in rank.events if event.kind not in layout.LASTING)
    plain, late = both(tmp_path)
    assert list(plain.ranks[0].events) == list(late.ranks[0].events)


@pytest.mark.parametrize(
    ("more", "odd"),
    [(700, True), pytest.param(0, False, marks=pytest.mark.nightly), pytest.param(9_000, False, marks=pytest.mark.nightly)],
)
def test_rings_that_begin_at_different_places_are_aligned(
    tmp_path: Path, more: int, odd: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    writers = [Writer(tmp_path, 0), Writer(tmp_path, 1)]
    for _ in range(more * 4):
        writers[1].event(events.SEED, seed=1)
    for writer in writers:
        writer.steps(25_000)
        writer.call("all_reduce", 77, reduce_op="max" if odd and writer is writers[1] else "sum")
        writer.steps(100)
        writer.event(events.EXIT, code=0)
    first = [kept(load_columns(tmp_path)[0], rank)[0] for rank in (0, 1)]
    assert (first[0] == first[1]) == (not more)
    assert main(["diff", str(tmp_path), "--format", "json"]) == odd
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == ("diverged" if odd else "agreed")
    if odd:
        assert told["divergences"][0]["index"] == 25_000 * (STEP - 1)
    assert all(rank["known_since"] > 1_000 for rank in told["ranks"].values())


def test_a_group_of_which_nothing_is_left_is_no_divergence(tmp_path: Path) -> None:
    writers = [Writer(tmp_path, 0), Writer(tmp_path, 1)]
    for writer in writers:
        writer.event(events.GROUP, action="new", name="pair", ranks=[0, 1])
        writer.call("barrier", 5, group="pair", numel=None, dtype=None)
        writer.index = 0
    writers[0].steps(100)  # it has ended, and its file has no gap
    writers[1].steps(25_000)
    for writer in writers:
        writer.event(events.EXIT, code=0)
    writers[1].index = 100 * (STEP - 1)
    assert main(["diff", str(tmp_path)]) in (0, 1)
    run, _ = load_columns(tmp_path)
    assert run.ranks[1].lost and not run.ranks[0].lost


def test_a_reader_that_follows_goes_round_with_the_ring(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, world=1, limit=3 * MB)
    follow = FollowRun(tmp_path, consume=lambda run: None)
    for _ in range(10):
        writer.steps(2_000)
        rank = follow.poll().ranks[0]
        assert (rank.lost, rank.damage) == (False, "")
    assert follow.progress[0] == 20_000 * STEP + 2
    writer.steps(25_000)  # more than the ring holds: the reader goes on where it begins by then
    writer.call("all_reduce", 9, done=False)
    rank = follow.poll().ranks[0]
    assert (rank.lost, rank.damage) == (True, "")
    assert rank.events[-1].index == writer.index - 1


def test_a_record_that_the_ring_has_come_round_to_is_not_marked(tmp_path: Path) -> None:
    writer = Writer(tmp_path, 0, world=1, limit=3 * MB)
    writer.steps(7_000)
    place = writer.call("all_reduce", 9, done=False)
    writer.steps(20_000)
    assert is_marked(place)
    mark(place, layout.DONE, time.time())
    assert all(run.ranks[0].damage == "" for run in both(tmp_path))


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_counted_from_the_start_is_not_compared_without_it(lost: bool) -> None:
    """Batches are equal by their number alone: of a ring that number is not known."""
    run = RecordedRun(2)
    for rank in range(2):
        forwards = [
            Event(events.FORWARD, detail={"model": "ddp0", "grad": True, "batch": f"{number:016x}"}) for number in range(1, 30)
        ]
        run.ranks[rank] = RankRun(rank, forwards, lost=lost)
    assert [fault.kind for fault in silent_faults(run)] == ([] if lost else ["same-samples"])


SCRIPT = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1)
end = time.time() + 60
while True:
    for _ in range(2000):
        dist.all_reduce(t)
    size = os.path.getsize(os.environ["DDP_AUDIT_TRACE_DIR"] + "/rank-00000.ddptrace")
    full = torch.tensor([1.0 if size >= 3 << 20 else 0.0])
    dist.all_reduce(full)
    if full.item() == 2 or time.time() > end:
        break
for _ in range(40000):
    dist.all_reduce(t)
if dist.get_rank() == 0:
    dist.barrier()
else:
    time.sleep(600)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("native", ["off", "auto"])
def test_a_hang_after_the_file_was_full_is_told_and_killed(tmp_path: Path, native: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.ENV_LIMIT, "3")
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py"]
    options = ["--no-check", "--stall-after", "3", "--on-stall", "kill", "--native", native, "--dir", "trace"]
    ended = subprocess.run(
        [sys.executable, "-m", "ddp_audit", "trace", *options, "--", *launch],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
    )
    text = " ".join(ended.stdout.split())
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "the command was ended, as --on-stall kill asks" in text
    assert "waits in barrier" in text or "in barrier" in text
    assert "was overwritten" in text
    run, _ = load_columns(tmp_path / "trace")
    assert all(rank.lost and not rank.damage for rank in run.ranks.values())
    assert (tmp_path / "trace" / "rank-00000.ddptrace").stat().st_size == 3 * MB
