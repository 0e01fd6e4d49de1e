"""Where a rank left: by `sys.exit` or `os._exit`, by a fatal signal, by a signal that nobody can answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.compare.explain import left_at
from ddp_audit.compare.run import EXITED, KILLED, RankRun
from ddp_audit.compare.verdict import rank_states
from ddp_audit.report.departed import nothing_lines
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

HEAD = """\
import ctypes, faulthandler, os, signal, sys, threading, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
dist.all_reduce(torch.ones(1))
"""


def traced(tmp_path: Path, body: str) -> RankRun:
    """What both readers say of the only rank of a program that goes on with `body`, whose first line is the sixth."""
    script, folder = tmp_path / "script.py", tmp_path / "trace"
    script.write_text(HEAD + body)
    command = [sys.executable, "-m", "ddp_audit.trace", "--directory", str(folder), str(script)]
    subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, timeout=120, check=False)
    plain, columns = load_run(folder), load_columns(folder)[0]
    assert rank_states(plain) == rank_states(columns)
    return plain.ranks[0]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("sys.exit(7)", 7),
        ("try:\n    sys.exit(3)\nfinally:\n    dist.destroy_process_group()", 3),
        ("threading.Thread(target=lambda: os._exit(4)).start(); time.sleep(60)", 4),
    ],
)
def test_an_exit_has_its_line(tmp_path: Path, body: str, code: int) -> None:
    rank = traced(tmp_path, body)
    assert (rank.state, rank.code) == (EXITED, code)
    site = left_at(rank)
    assert site is not None and str(site) == f"script.py:{7 if 'try' in body else 6}"


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    sys.exit(3)\nexcept SystemExit:\n    dist.all_reduce(torch.ones(1))",
        "import subprocess\nif not os.fork():\n    os._exit(3)\nos.wait()",
    ],
)
def test_the_end_of_a_script_is_no_exit(tmp_path: Path, body: str) -> None:
    rank = traced(tmp_path, body)
    assert (rank.state, left_at(rank)) == (EXITED, None)


@pytest.mark.parametrize(
    ("body", "fatal"),
    [
        ("assert not faulthandler.is_enabled() and not faulthandler.disable(); os.abort()", "Aborted"),
        ("t = threading.Thread(target=lambda: ctypes.string_at(0)); t.start(); t.join()", "Segmentation fault"),
        ("if not os.fork(): os.abort()\nos.wait(); ctypes.string_at(0)", "Segmentation fault"),
    ],
)
def test_a_fatal_signal_has_its_line(tmp_path: Path, body: str, fatal: str) -> None:
    rank = traced(tmp_path, body)
    assert (rank.state, rank.fatal, rank.waiting) == (KILLED, fatal, None)
    assert str(left_at(rank)) == f"script.py:{6 + body.count(chr(10))}"
    state = rank_states(load_run(tmp_path / "trace"))[0]
    assert state.failed and state.error == fatal
    assert nothing_lines(state) == [f"nothing: crashed: {fatal}", f"@{state.left_at}"]


def test_a_handler_of_the_programs_has_the_signal(tmp_path: Path) -> None:
    """The program's own faulthandler writes where the program wants it to."""
    body = "file = open('own', 'w'); faulthandler.enable(file); assert faulthandler.is_enabled()\nos.abort()"
    rank = traced(tmp_path, body)
    assert "Fatal Python error: Aborted" in (tmp_path / "own").read_text()
    assert (rank.state, rank.fatal, str(rank.seen)) == (KILLED, "", "script.py:5")


def test_a_crash_of_a_forked_child_is_not_the_ranks(tmp_path: Path) -> None:
    rank = traced(tmp_path, "if not os.fork(): os.abort()\nos.wait()\nos.kill(os.getpid(), signal.SIGKILL)")
    assert (rank.state, rank.fatal, str(rank.seen)) == (KILLED, "", "script.py:8")


def test_a_rank_that_kills_itself_was_last_seen_there(tmp_path: Path) -> None:
    rank = traced(tmp_path, "signal.raise_signal(signal.SIGKILL)")
    assert (rank.state, str(rank.seen)) == (KILLED, "script.py:6")
    state = rank_states(load_run(tmp_path / "trace"))[0]
    assert "was last seen at script.py:6" in state.text and not state.failed


def test_a_rank_that_is_killed_was_last_seen_where_it_stood(tmp_path: Path) -> None:
    """No event is of that line: the heartbeat saw it."""
    body = "os.system(f'(sleep 1.5; kill -9 {os.getpid()}) &')\nfor _ in range(3):\n    time.sleep(60)\n"
    rank = traced(tmp_path, body)
    assert (rank.state, str(rank.seen)) == (KILLED, "script.py:8")


def test_functions_can_still_be_pickled(tmp_path: Path) -> None:
    body = (
        "import pickle\nfor f in (os._exit, os.kill, signal.raise_signal, sys.exit):\n    assert pickle.loads(pickle.dumps(f)) is f"
    )
    assert traced(tmp_path, body).code == 0
    assert not (tmp_path / "trace" / "rank-00000.stacks").exists()
