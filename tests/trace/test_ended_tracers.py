"""A tracer that ends before its rank: the launcher says so, watches where the rank stands, and does not leave with 0."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

SCRIPT = """\
import os, sys, time
if sys.argv[1] == "cannot-start" and os.environ["RANK"] == "1":
    sys.modules["ddp_audit.trace.worker.hook"] = None
import torch, torch.distributed as dist
from ddp_audit.trace.worker import boot
dist.init_process_group("gloo")
part = torch.ones(2)
dist.all_reduce(part)
tracer = boot._state["tracer"]
if sys.argv[1] == "all" or (sys.argv[1] == "one" and dist.get_rank() == 0):
    tracer.fail(RuntimeError("broken"))
for step in range(3):
    dist.all_reduce(part)
if sys.argv[2] == "hangs":
    if dist.get_rank() == 0:
        dist.all_reduce(part)  # LONELY
    time.sleep(600)
dist.destroy_process_group()
"""


def traced(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--on-stall", "kill", "--stall-after", "4", "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py", *words]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240
    )


def said(outcome: subprocess.CompletedProcess[str]) -> str:
    return " ".join(outcome.stdout.split())


def test_a_run_that_ends_well(tmp_path: Path) -> None:
    outcome = traced(tmp_path, "one", "ends")
    assert "Tracing of rank 0 has ended: what comes then is not recorded." in said(outcome)
    assert "the tracing of rank 0 ended before the run did" in said(outcome)
    assert outcome.returncode == 2
    diff = subprocess.run([sys.executable, "-m", "ddp_audit", "diff", "ddp-trace"], cwd=tmp_path, timeout=120)
    assert diff.returncode == 2


def test_a_hang_that_no_tracer_sees_is_told_and_ended(tmp_path: Path) -> None:
    outcome = traced(tmp_path, "all", "hangs")
    line = next(number for number, text in enumerate(SCRIPT.splitlines(), 1) if text.endswith("# LONELY"))
    assert "Tracing of ranks 0 and 1 has ended: what comes then is not recorded." in said(outcome)
    assert f"it stood at train.py:{line} last" in said(outcome)
    assert "The ranks go on" not in said(outcome), "they were ended"
    assert "stalled: the tracing of ranks 0 and 1 had ended, so that what they wait for is not known." in said(outcome)
    assert outcome.returncode not in (0, 2)
    ranks = load_run(tmp_path / "ddp-trace").ranks
    assert [rank.untraced for rank in ranks.values()] == [True, True]
    assert str(ranks[0].stands) == f"train.py:{line}"


def test_a_rank_whose_tracer_cannot_start_is_not_taken_for_missing(tmp_path: Path) -> None:
    outcome = traced(tmp_path, "cannot-start", "hangs")
    line = next(number for number, text in enumerate(SCRIPT.splitlines(), 1) if "time.sleep" in text)
    assert "Tracing of rank 1 has ended: what comes then is not recorded." in said(outcome)
    assert f"it stood at train.py:{line} last; last recorded: start" in said(outcome)
    assert "stalled: the tracing of rank 1 had ended, so that what they wait for is not known." in said(outcome)
    assert "missing" not in said(outcome) and outcome.returncode not in (0, 2)
    assert outcome.stderr.count("tracing of rank 1 has ended: ModuleNotFoundError") == 1
