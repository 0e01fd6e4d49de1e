"""A process whose interpreter is locked by a call in C still tells its line, and the timer for that leaves the program alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddp_audit.compare.explain import standing
from ddp_audit.compare.run import EXITED, RankRun
from ddp_audit.events import Site
from ddp_audit.trace.columns import load_columns
from ddp_audit.trace.locked import site_in
from ddp_audit.trace.store import TraceError, load_run

pytestmark = pytest.mark.traced

STACKS = """\
Timeout (0:00:03)!
Thread 0x00007f563a4286c0 [watch] (most recent call first):
  File "/home/me/other.py", line 8 in wait

Thread 0x00007f565a5cbb80 (most recent call first):
  File "/opt/lib/python3.11/site-packages/torch/_ops.py", line 9 in __call__
  File "/usr/lib/python3.11/runpy.py", line 88 in _run_code
  File "<frozen importlib._bootstrap>", line 1 in _call
  File "/home/me/project/model/text.py", line 40 in tokenize
  File "/home/me/project/train.py", line 7 in <module>
"""


def test_the_line_of_a_thread() -> None:
    assert site_in(STACKS, 0x7F565A5CBB80, "/home/me/project") == Site("model/text.py", 40, "tokenize")
    assert site_in(STACKS, 0x7F563A4286C0, "/home/me/project") == Site("/home/me/other.py", 8, "wait")
    assert site_in(STACKS, 5, "/home/me/project") is None


def test_how_a_locked_rank_is_told() -> None:
    site = Site("train.py", 7, "f")
    run = RankRun(1, [], silent=5.14, locked=True, stands=site, last="at train.py:7, in no collective, after forward")
    assert (
        standing(run)
        == "has not answered for 5.1 s: a call in C locks its interpreter, at train.py:7, in no collective, after forward"
    )


LOCKED = """\
import ctypes, faulthandler, os, sys, threading, time
import torch
def hold():
    ctypes.PyDLL(None).sleep(8)  # locked
hold()
time.sleep(1)  # the timer is set again
child = os.fork()
if not child:
    sys.exit(3)  # the interpreter's own end, which waits for a timer that is set
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
faulthandler.dump_traceback_later(1000, exit=True)
time.sleep(1)
faulthandler.cancel_dump_traceback_later()
time.sleep(1)
"""


def test_a_locked_interpreter_tells_its_line(tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "trace"
    script.write_text(LOCKED)
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "DDP_AUDIT_TRACE_LOCKED": "0.6"}
    command = [sys.executable, "-m", "ddp_audit.trace", "--directory", str(folder), str(script)]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        rank = until_locked(folder)
        assert (rank.stands, rank.locked) == (Site("script.py", 4, "hold"), True)
        assert rank.last.startswith("at script.py:4, in no collective")
        assert load_columns(folder)[0].ranks[0].stands == rank.stands
        told, _ = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "child 3\n")
    assert load_run(folder).ranks[0].state == EXITED
    assert not (folder / "rank-00000.stacks").exists()


def until_locked(folder: Path) -> RankRun:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            rank = load_run(folder).ranks[0]
        except TraceError:  # not there yet
            rank = RankRun(0)
        if rank.locked:
            return rank
        time.sleep(0.1)
    pytest.fail("no stacks were written")
