"""The bad programs of DDP112 and DDP401, mended by the codemods, run under torchrun on two ranks: the fault is gone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.rule import load_rules

pytest.importorskip("torch")

RULES = {rule.code: rule for rule in load_rules()}


def run(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_mended_programs_run_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in ("DDP112", "DDP401"):
        Path(f"{code}.py").write_text(RULES[code].bad)
        assert main([f"{code}.py", "--fix", "--unsafe-fixes", "--select", code]) == 0
        assert Path(f"{code}.py").read_text() != RULES[code].bad
    flag = run(tmp_path / "DDP112.py")
    assert flag.returncode == 0, flag.stderr[-2000:]
    checksums = re.findall(r"checksum (-?\d+\.\d{6})", flag.stdout)  # two ranks may write on one line
    assert len(checksums) == 2
    assert len(set(checksums)) == 1  # the gradients were reduced, so both ranks hold the same parameters
    evaluation = run(tmp_path / "DDP401.py")
    assert evaluation.returncode == 0, evaluation.stderr[-2000:]
    assert evaluation.stdout.count("done") == 2
    assert evaluation.stdout.count("validation") == 4
