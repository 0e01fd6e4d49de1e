"""Error texts of torch, gloo, NCCL and torchrun in logs, as users paste them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compare_events import all_reduce, broadcast, rank_run, recorded, site

from ddp_audit.cli import main
from ddp_audit.compare.log_texts import TEXTS
from ddp_audit.compare.logs import notes_in, read_logs, with_diff
from ddp_audit.compare.run import EXITED, KILLED, MISSING, RAISED, RUNNING
from ddp_audit.compare.verdict import RankState, compare_run
from ddp_audit.report import log_lines

LINES = {
    "gloo-timeout": "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete",
    "gloo-size-mismatch": "  what():  [enforce fail at ../gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 64 vs 20. Received data size doesn't match expected size.",
    "gloo-all-to-all-splits": "[rank1]: RuntimeError: inLengthPerRank[myRank] == outLengthPerRank[myRank]. ",
    "gloo-peer-closed": "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:12172. This is typically caused by a remote worker crashing.",
    "gloo-peer-reset": "pair.cc:537] Read error [127.0.0.1]:1234: Connection reset by peer. This is typically caused by a remote worker hanging",
    "gloo-pair-closure": "RuntimeError: Application timeout caused pair closure",
    "terminate-after-timeout": "terminate called without an active exception",
    "monitored-barrier-failed": "RuntimeError: [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 3000 ms",
    "monitored-barrier-passed": "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.",
    "nccl-timeout": "[rank3]:[E1129 00:00:00.0 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.",
    "nccl-watchdog-failure": "[PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected by watchdog at work sequence id: 3755 PG status: last enqueued work: 3756, last completed work: 3754",
    "nccl-no-stack": "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled.",
    "nccl-dump-first": "First PG on this rank to signal dumping.",
    "nccl-dump-other": "Observed flight recorder dump signal from another rank via TCPStore.",
    "nccl-stuck-watchdog": "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
    "nccl-taken-down": "To avoid data inconsistency, we are taking the entire process down.",
    "nccl-watchdog-ended": "[Rank 0] Process group watchdog thread terminated with exception: CUDA error",
    "detail-mismatch": "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1",
    "ddp-unused-parameters": "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates",
    "ddp-unused-names": "Parameters which did not receive grad for rank 0: b.bias, b.weight",
    "ddp-static-graph-changed": "This error indicates that your training graph has changed in this iteration",
    "ddp-ready-twice": "RuntimeError: Expected to mark a variable ready only once. This error is caused by",
    "ddp-other-model": "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has inconsistent 1 params.",
    "segmentation-fault": "  traceback : Signal 11 (SIGSEGV) received by PID 4",
    "child-failed": "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
}


def test_every_text_is_recognised_as_what_it_is() -> None:
    assert sorted(LINES) == sorted(text.kind for text in TEXTS)
    for kind, line in LINES.items():
        (note,) = notes_in([line + "\n"], "worker.log")
        assert note.kind == kind and "{" not in note.meaning


def test_usual_lines_are_no_texts() -> None:
    usual = ["epoch 3 loss 0.1", "NCCL version 2.21", "Timed out waiting for the dataset", "[rank0]: barrier passed", "broken pipe"]
    assert list(notes_in(usual, "worker.log")) == []


def test_numbers_and_ranks_are_read() -> None:
    notes = {note.kind: note for note in notes_in(LINES.values(), "x.log")}
    assert notes["nccl-timeout"].ranks == [3] and "ALLREDUCE number 1580" in notes["nccl-timeout"].meaning
    assert "within 600 s" in notes["nccl-timeout"].meaning
    assert "waited 1800 s" in notes["gloo-timeout"].meaning
    assert "received 64 bytes" in notes["gloo-size-mismatch"].meaning and "room for 20" in notes["gloo-size-mismatch"].meaning
    assert notes["gloo-peer-closed"].ranks == [1]
    assert "Ranks 1, 3 did not enter" in notes["monitored-barrier-failed"].meaning


def test_logs_of_torchrun_in_a_folder(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / "none_1" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text("\x1b[31mstep 1\rstep 2\r" + LINES["gloo-timeout"] + "\x1b[0m\n")
    (note,) = read_logs([tmp_path])
    assert (note.ranks, note.count, note.line) == ([0, 1], 2, 1)
    assert note.text.startswith("RuntimeError")


def test_a_text_is_joined_with_the_diff() -> None:
    run = recorded(
        rank_run(0, [all_reduce(3, index=0), all_reduce(5, index=1)]), rank_run(1, [all_reduce(3, index=0), broadcast(9, index=1)])
    )
    parted = compare_run(run).parted
    notes = list(notes_in([LINES["nccl-timeout"].replace("1580", "2")], "x.log"))
    text = "\n".join(log_lines.lines(notes, with_diff(notes, parted)))
    assert "Number 2 of the watchdog is collective 1 which is where the ranks diverge." in " ".join(text.split())
    assert "collective 1 of the default group: rank 0 at train.py:5; rank 1 at train.py:9." in " ".join(text.split())
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "not in the trace" in " ".join(with_diff(notes, []))


STATES = {
    "no trace": (MISSING, {}, "rank 1 left no trace."),
    "an exception": (RAISED, {"error": "ValueError: x", "raised_at": site(7)}, "rank 1 ended with ValueError: x at train.py:7."),
    "an exception of which nothing is known": (RAISED, {}, "rank 1 ended with an exception."),
    "an exit": (EXITED, {"code": 3}, "rank 1 exited with code 3."),
    "a signal": (KILLED, {"code": -9}, "rank 1 was killed by signal 9."),
    "no end": (RUNNING, {}, "rank 1 never entered it."),
}


@pytest.mark.parametrize(("state", "fields", "said"), STATES.values(), ids=STATES)
def test_what_became_of_a_rank_that_never_entered_the_collective(state: str, fields: dict[str, Any], said: str) -> None:
    parted = compare_run(recorded(rank_run(0, [all_reduce(3, index=0)], KILLED), rank_run(1, [], EXITED))).parted
    notes = list(notes_in([LINES["gloo-timeout"]], "x.log"))
    known = {"code": None, **fields}
    told = with_diff(notes, parted, {1: RankState(rank=1, events=0, collectives=0, state=state, last="", text="", **known)})
    assert told == [f"The diff explains these texts by collective 0 of the default group: rank 0 at train.py:3; {said}"]


def test_a_number_of_the_watchdog_counts_from_the_first_collective_that_is_known() -> None:
    run = recorded(rank_run(0, [all_reduce(3, index=4)]), rank_run(1, [broadcast(9, index=4)]))
    parted = compare_run(run).parted
    for seq, where in (("3", "collective 4 which is where"), ("2", "collective 3 as the diff counts them")):
        notes = list(notes_in([LINES["nccl-timeout"].replace("1580", seq)], "x.log"))
        assert where in with_diff(notes, parted, first_index=2)[0]
    assert with_diff([], parted) == []


def test_diff_takes_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "trace"))
    from flight_dumps import Recorder, steps, write

    made = [Recorder(rank, 2) for rank in range(2)]
    for one in made:
        steps(one, 2)
        one.add("all_reduce", [4 + one.rank], line=30, done=False)
    folder = write(tmp_path / "dumps", made)
    log = tmp_path / "worker.log"
    log.write_text(LINES["nccl-timeout"].replace("1580", "5") + "\n")
    assert main(["diff", str(folder), "--log", str(log)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "What the log says nccl-timeout" in said and "is collective 5 which is where the ranks diverge" in said
    assert main(["diff", str(folder), "--log", str(log), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["log"][0]["kind"] == "nccl-timeout"
    assert main(["diff", str(folder), "--log", str(tmp_path / "none.log")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


SCRIPT = """
import sys
print("to stdout", flush=True)
sys.stderr.write(%r + "\\n")
sys.exit(3)
"""


def test_trace_reads_the_commands_standard_error(tmp_path: Path) -> None:
    """A command that dies before any rank leaves a trace still has its standard error shown and kept."""
    pytest.importorskip("torch")
    (tmp_path / "x.py").write_text(SCRIPT % LINES["gloo-timeout"])
    line = [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", "t", "--", sys.executable, "x.py"]
    done = subprocess.run(line, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "to stdout" in done.stdout
    assert LINES["gloo-timeout"] in done.stderr
    assert (tmp_path / "t" / "stderr.log").read_text() == LINES["gloo-timeout"] + "\n"
    assert "What the log says" in done.stdout and "gloo-timeout: t/stderr.log:1" in done.stdout
