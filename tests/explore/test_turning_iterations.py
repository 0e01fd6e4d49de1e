"""Conditions on the index of a long loop are looked at where they turn, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DDP(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
REACHED = [
    ("range(100000)", "rank == 0 and step % 40000 == 39999"), ("range(100000)", "step == 70000 and rank == 0"),
    ("range(100000)", "rank == 0 and (step + 1) % 40000 == 0"), ("range(1, 100001)", "rank == 0 and step % 40000 == 0"),
    ("range(100000)", "rank == 0 and step > 7 and step % 30000 == 29999 and step % 3 == 2"), ("range(90)", "rank == 0 and step in (30, 60)"),
    ("range(100000)", "rank == 0 and step // 40000 == 2 and step % 40000 == 5"), ("range(90)", "step >= 40 and step % 10 == 9 and rank == 0"),
]  # fmt: skip
NOT_REACHED = [
    ("range(100000)", "rank == 0 and step % 40000 == 40001"), ("range(100000)", "rank == 0 and step == 100000"),
    ("range(3000)", "rank == 0 and step % 40000 == 39999"), ("range(100000)", "rank == 0 and step % 4 == 1 and step % 2 == 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("over", "condition", "expected"),
    [(*one, True) for one in REACHED] + [(*one, False) for one in NOT_REACHED],
    ids=lambda value: str(value),
)
def test_a_forward_of_one_rank_far_into_a_loop(
    over: str, condition: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = f"    model(torch.ones(2, 4)).sum().backward()\n    opt.step()\n    if {condition}:\n        model(torch.ones(2, 4))\n"
    Path("train.py").write_text(f"{HEAD}for step in {over}:\n{body}")
    found = audit(["train.py"], Options(select=["DDP401"])).findings
    assert [(f.code, f.span.line) for f in found] == ([("DDP401", 13)] if expected else [])
