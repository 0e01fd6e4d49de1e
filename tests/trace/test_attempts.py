"""Ranks that torchrun has started again: what was recorded before is compared and reported too."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import events
from ddp_audit.cli import main
from ddp_audit.cli.recorded import compared_trace
from ddp_audit.compare.judging import judge
from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding, Span
from ddp_audit.trace.worker import layout
from ddp_audit.trace.worker.ring import Ring, mark


def record(folder: Path, rank: int, collectives: int, *, restart: int, run: str = "r", aside: int | None = None) -> None:
    """A rank's file with some collectives that have returned and an exit. `aside` is the number it was moved aside with."""
    path = folder / layout.FILE_PATTERN.format(rank)
    ring = Ring(str(path), rank)
    write_event(ring, events.START, rank=rank, world_size=2, pid=1, host=os.uname().nodename, ticks=0, run=run, restart=restart)
    text = {"op": "barrier", "call": "barrier", "group": "default", "origin": "user", "numel": None, "dtype": None, "shape": []}
    stack = ring.define(layout.STACK_TEXT, [["train.py", 7, "step"]])
    signature = ring.define(layout.SIGNATURE_TEXT, {**text, "root": None, "reduce_op": None, "async": False, "stack": stack})
    for index in range(collectives):
        mark(ring.write(layout.COLLECTIVE, 0, signature, index, time.time()), layout.DONE, time.time())
    write_event(ring, events.EXIT, code=0)
    ring.close()
    if aside is not None:
        path.rename(f"{path}.{aside}")


def write_event(ring: Ring, kind: str, **detail: Any) -> None:
    ring.write_value(0, ring.define(layout.EVENT_TEXT, {"kind": kind, "group": "default", "stack": 0, "detail": detail}), 0, 1.0, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two attempts: in the first, rank 1 misses a barrier."""
    record(tmp_path, 0, 3, restart=0, aside=0)
    record(tmp_path, 1, 2, restart=0, aside=0)
    record(tmp_path, 0, 4, restart=1)
    record(tmp_path, 1, 4, restart=1)
    return tmp_path


def test_an_earlier_attempt_is_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(folder)]) == 1
    first, second = capsys.readouterr().out.split("Attempt 2, the last")
    assert first.startswith("Attempt 1, after which the launcher started the ranks again")
    assert "Collective 2 of the default group: one collective too many" in first
    assert "The 2 ranks agree in 4 collectives." in second
    assert main(["diff", str(folder), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "agreed"
    assert main(["diff", str(folder), "--format", "html"]) == 1
    assert "Attempt 1, after which the launcher started the ranks again" in capsys.readouterr().out
    assert [(one["attempt"], one["verdict"], one["divergences"][0]["index"]) for one in found["earlier"]] == [(0, "diverged", 2)]


@pytest.mark.parametrize("how", ["agreed", "of another run", "damaged", "of one rank"])
def test_what_says_nothing_against_the_run(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in range(1 if how == "of one rank" else 2):
        missed = rank if how == "of another run" else 0
        record(tmp_path, rank, 2 - missed, restart=0, aside=0, run="another" if how == "of another run" else "r")
    for rank in range(2):
        record(tmp_path, rank, 4, restart=1)
    if how == "damaged":
        (tmp_path / "rank-00000.ddptrace.0").write_bytes(b"no trace")
    code = main(["diff", str(tmp_path)])
    out = capsys.readouterr().out
    if how == "of one rank":
        assert "Attempt 1" in out and "Rank 1: left no trace" in out
    else:
        assert ("Attempt" in out) == (how == "agreed")
    assert code == 0, out


def test_a_finding_is_confirmed_by_any_attempt(folder: Path) -> None:
    class Missed:
        """Confirmed where a rank has fewer than four collectives."""

        code = "XYZ001"

        def verify(self, finding: Finding, run: RecordedRun) -> str:
            return "not-observed" if len(list(run.events_of(events.COLLECTIVE))) == 8 else "confirmed"

    finding = Finding("XYZ001", "missed", "error", "likely", Span("train.py", 7, 1, 7, 5), "m")
    run, _ = compared_trace(folder)
    for attempt in (*run.earlier, run):
        judge([finding], attempt, [Missed()])  # type: ignore[list-item]
    assert finding.verdict == "confirmed"
