"""The ledger of losses: the first cause of what a small script leaves open, in both readings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from ledger.ledger import one

SCRIPT = """\
import somewhere
import torch.distributed as dist
dist.init_process_group("gloo")
size = somewhere.size()
half = size // 2
if half > 3:
    dist.barrier()
for _ in range(size):
    dist.barrier()
name = "a" if somewhere.name() else "b"
"""


def test_a_deciding_unknown_has_its_first_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    found = one("train.py")["losses"]
    run = {(loss["what"], loss["place"]): (loss["cause"], loss["origin"]) for loss in found["run"]}
    assert run["branch", "train.py:6"] == ("call somewhere.size()", "train.py:4")
    assert run["loop", "train.py:8"] == ("call somewhere.size()", "train.py:4")
    assert ("branch", "train.py:10") not in run
    assert ("branch", "call somewhere.size()", "train.py:6") in {(x["what"], x["cause"], x["place"]) for x in found["program"]}
