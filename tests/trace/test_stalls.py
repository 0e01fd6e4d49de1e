"""Runs in which nothing moves any more although no rank waits in a collective: the launcher ends them all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.compare.run import EXITED, KILLED, RUNNING, RankRun, RecordedRun
from ddp_audit.compare.verdict import compare_run
from ddp_audit.events import EXIT, START, Event
from ddp_audit.report.trace_text import headline
from ddp_audit.trace import stalls
from ddp_audit.trace.launcher import run_traced
from ddp_audit.trace.stalls import Stalls
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

HEAD = """\
import ctypes, os, signal, sys, time
import torch
import torch.distributed as dist
rank = int(os.environ["RANK"])
"""
FORMS = {
    "a rendezvous": "time.sleep(300) if rank else dist.init_process_group('gloo')",
    "the end of the interpreter": """
class Held:
    def __del__(self, sleep=ctypes.CDLL(None).sleep):
        sleep(300)
dist.init_process_group('gloo')
held = Held() if rank else None
""",
    "stopped": "dist.init_process_group('gloo')\nos.kill(os.getpid(), signal.SIGSTOP)",
}


@pytest.mark.parametrize("form", FORMS)
def test_a_hang_outside_of_collectives_is_ended(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("train.py").write_text(HEAD + FORMS[form])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    result = run_traced(command, directory="trace", stall_after=1.0, on_stall="kill")
    assert result.killed
    run = load_run("trace")
    lingering = form == "the end of the interpreter"
    if not lingering:
        assert run.meta["killed_ranks"] == [0, 1]
    assert [run.ranks[rank].state for rank in (0, 1)] == [EXITED if lingering else KILLED] * 2
    assert headline(compare_run(run)).text.startswith("The 2 ranks stalled")


def rank_run(process: subprocess.Popen[bytes] | None, state: str, **known: object) -> RankRun:
    """A rank of this host; without a process it has ended."""
    detail = {"host": stalls.socket.gethostname(), "pid": process.pid if process else 1 << 22, "ticks": 0}
    return RankRun(0, [Event(START, detail=detail), Event(EXIT)], state, **known)  # type: ignore[arg-type]


def test_who_is_at_work_is_waited_for_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls.time, "time", lambda: 1000.0)
    found = Stalls(tmp_path, 3.0, 1)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            used = [0.0]
            monkeypatch.setattr(stalls, "cpu_of_tree", lambda pid: used[0])
            monkeypatch.setattr(stalls, "is_runnable", lambda pid: False)  # which a process is that has just begun
            waits, works = rank_run(None, RUNNING, blocked=990.0), rank_run(process, RUNNING)
            run = RecordedRun(2, {0: waits, 1: works})
            for second in range(5):
                used[0] = second * 0.5
                assert found.longest(run, float(second)) is None
            assert found.longest(run, 9.0) == ((0, "blocked", 990.0), 10.0)  # it has not used the CPU since
            assert found.longest(RecordedRun(3, run.ranks), 9.0) is None  # a rank that is not known yet
            used[0] = 90.0
            waits.blocked = 960.0
            assert found.longest(run, 10.0) == ((0, "blocked", 960.0), 40.0)
        finally:
            process.kill()


def test_a_process_that_works_at_its_end_does_not_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, used = Stalls(tmp_path, 3.0, 1), [0.0]
    monkeypatch.setattr(stalls, "cpu_of_tree", lambda pid: used[0])
    monkeypatch.setattr(stalls, "is_runnable", lambda pid: False)
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            run = RecordedRun(1, {0: rank_run(process, EXITED)})
            for second in range(8):
                used[0] = second * 0.2
                stall = found.longest(run, float(second))
                assert stall is not None and stall.seconds == 0.0
            stall = found.longest(run, 11.0)
            assert stall is not None and stall.seconds == 4.0
            assert run.ranks[0].lingers
        finally:
            process.kill()


def test_a_launcher_whose_ranks_have_ended_stalls_where_it_is_torchruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stalls, "has_children", lambda pid: False)
    run = RecordedRun(1, {0: rank_run(None, EXITED)})
    for lone in (True, False):
        monkeypatch.setattr(stalls, "is_lone_agent", lambda pid, lone=lone: lone)
        found = Stalls(tmp_path, 3.0, 7)
        found.longest(run, 1.0)
        assert found.longest(run, 9.0) == ((("agent", 7), 8.0) if lone else None)
