"""`ddp-audit top`: frames of a run, plain and drawn, and that it ends with the run."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_steps import steps_of
from generated_traces import generate

from ddp_audit.cli import main
from ddp_audit.compare.run import RUNNING, WAITING, RecordedRun
from ddp_audit.compare.verdict import compare_run
from ddp_audit.events import COLLECTIVE
from ddp_audit.report import top_text
from ddp_audit.report.console import console_for
from ddp_audit.trace import status as module
from ddp_audit.trace.status import Status, status_of
from ddp_audit.trace.worker import layout


def status(run: RecordedRun, after: float = 2.0) -> Status:
    last = max(one.events[-1].time for one in run.ranks.values())
    return status_of(run, compare_run(run), last + after)


def living(ranks: int = 2, share: float = 0.0) -> RecordedRun:
    """A run under way, whose rank 0 waits in a collective."""
    run = steps_of(ranks, 40, 3, slow=1, phase="data", share=share)
    run.complete = False
    for one in run.ranks.values():
        one.state, one.last = RUNNING, "step at train.py:34"
    waiting = next(event for event in reversed(run.ranks[0].events) if event.kind == COLLECTIVE)
    run.ranks[0].state, run.ranks[0].waiting = WAITING, waiting
    return run


def test_a_frame_shows_rate_waits_what_is_under_way_and_the_verdict() -> None:
    lines = top_text.plain(status(living(share=0.2)), 100)
    assert lines[0].startswith("2 ranks, running, 0:") and lines[0].endswith("steps/s") and ", step 40, " in lines[0]
    first, second = (line.split() for line in lines[2:4])
    assert first[:3] == ["0", "waiting", "40"] and second[:3] == ["1", "running", "40"]
    assert float(first[3]) > float(second[3])
    assert " s in all_reduce at train.py:33 (DDP bucket all-reduce)" in lines[2]
    assert lines[3].endswith("step at train.py:34")
    assert lines[4].startswith("Rank 1 takes ") and "in data loading at train.py:30" in lines[4]
    assert top_text.plain(status(living()), 100)[4] == "The ranks agree so far."


def test_a_line_says_the_same() -> None:
    text = top_text.line(status(living(share=0.2)))
    assert "\n" not in text
    assert (
        " | waiting: rank 0 " in text
        and " | rank 0 in all_reduce at train.py:33 (DDP bucket all-reduce) | " in text
        and " | Rank 1 takes " in text
    )


def test_of_many_ranks_some_are_shown_and_the_slow_one_is_among_them() -> None:
    found = status(steps_of(48, 21, 1, slow=29, phase="forward", share=0.2))
    lines = top_text.plain(found, 100)
    assert len(lines) == 2 + top_text.MOST_ROWS + 2
    assert any(line.split()[:1] == ["29"] for line in lines)
    assert lines[-2] == "  and 32 more ranks"


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    console_for(stream, 100).print(top_text.drawn(status(living(share=0.2))))
    text = stream.getvalue()
    assert "rank" in text and "waits" in text and "\x1b[" in text and "Rank 1 takes" in text


def test_once_prints_a_frame_of_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(tmp_path, 3, 400, "none", 1)
    assert main(["top", str(tmp_path), "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 ranks, ended, 0:01, step ")
    assert len(lines) == 6 and lines[-1].startswith("The 3 ranks agree in ")


def test_a_divergence_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(tmp_path, 2, 400, "size", 1)
    assert main(["top", str(tmp_path), "--once"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "The 2 ranks diverged."


def test_it_ends_when_the_job_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = status(living())
    ended = status(steps_of(2, 40, 3))
    left = [now, now, ended]
    monkeypatch.setattr(module, "read_status", lambda folder: left.pop(0))
    assert main(["top", str(tmp_path), "--interval", "0.05"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [", running, " in line for line in lines] == [True, True, False]
    assert not left


def test_a_terminal_is_left_in_order_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [status(living()), status(steps_of(2, 40, 3))]
    monkeypatch.setattr(module, "read_status", lambda folder: left.pop(0))
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["top", str(tmp_path), "--interval", "0.05"]) == 0
    assert not left
    text = stream.getvalue()
    assert "ended" in text and text.rstrip().endswith("\x1b[?25h")  # the cursor is shown again


def test_what_cannot_be_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(tmp_path / "nowhere"), "--once"]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert main(["top", str(tmp_path), "--once"]) == 2
    assert "nothing is recorded yet" in capsys.readouterr().err
    (tmp_path / layout.RUN_FILE).write_text(json.dumps({"run": "x", "end": 1.0, "exit_code": 3}))
    assert main(["top", str(tmp_path)]) == 2  # the command has ended: there is nothing to wait for
    assert "exited with 3 before any process called init_process_group()" in capsys.readouterr().err
    (tmp_path / "rank-00000.ddptrace").write_bytes(b"something else" * 10)
    assert main(["top", str(tmp_path), "--once"]) == 2
    assert "not a file of the ddp-audit tracer" in capsys.readouterr().err


def test_ctrl_c_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: str) -> Status:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "read_status", interrupted)
    assert main(["top", str(tmp_path)]) == 0


def test_a_rank_without_a_trace_is_named() -> None:
    run = living(3)
    run.ranks[2] = replace(run.ranks[2], events=[], state="missing", last="no trace file")
    assert top_text.verdict(status_of(run, compare_run(run), 0.0)) == "Rank 2 left no trace so far."
