"""What traced runs tell of values that nobody reads (DDP214), states that all ranks restore (DDP310) and the size of a part (DDP807)."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from found import rules
from test_data_and_device_runs import finding_in, run_in_order

from ddp_audit.compare.run import RecordedRun
from ddp_audit.findings import Finding
from ddp_audit.trace.store import load_run

pytestmark = pytest.mark.traced

pytest.importorskip("torch")

SCALED = """\
import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
low, high = dist.new_group([0, 1]), dist.new_group([2, 3])
mine = low if rank < 2 else high
model = DDP(torch.nn.Linear(4, 3), process_group=mine)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    count = torch.tensor(6.0)
    dist.all_reduce(count, group=mine)
    loss = F.cross_entropy(model(x), y, reduction="sum").div(count) * world
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def moved(finding: Finding, name: str) -> Finding:
    """A finding of train.py as that of another file with the same lines."""
    finding.span = replace(finding.span, path=f"{name}.py")
    finding.related = [replace(one, path=f"{name}.py") for one in finding.related]
    return finding


def test_values_of_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received = rules()["DDP214"]
    asked = "threshold = 0.5 if rank == 0 else None"
    assert asked in received.bad
    scripts = {
        "other": received.bad,
        "same": received.bad.replace(asked, "threshold = float(torch.tensor(4.0).sqrt())"),
        "unknown": received.bad.replace(asked, "threshold = {rank: 1}"),
    }
    run_in_order(tmp_path, scripts, [(name, name, []) for name in scripts], "-m", "ddp_audit.trace", "--directory", "sent")
    run = load_run(tmp_path / "sent")
    verdicts = {}
    for name in scripts:
        finding = finding_in("DDP214", tmp_path, monkeypatch, received.bad)
        verdicts[name] = received.verify(moved(finding, name), run)
    assert verdicts == {"other": "confirmed", "same": "not-observed", "unknown": "not-exercised"}


@pytest.mark.nightly
def test_states_of_two_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = rules()["DDP310"]
    finding = finding_in("DDP310", tmp_path, monkeypatch, restored.bad)
    for name, text, verdict in (("one", restored.bad, "confirmed"), ("each", restored.good, "not-observed")):
        run_in_order(tmp_path, {name: text}, [(name, name, [])], "-m", "ddp_audit.trace", "--directory", name)
        assert restored.verify(finding, load_run(tmp_path / name)) == verdict


def traced_on_four(folder: Path, name: str, text: str) -> RecordedRun:
    (folder / f"{name}.py").write_text(text)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", "--standalone"),
        *("-m", "ddp_audit.trace", "--directory", name, f"{name}.py"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return load_run(folder / name)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("factor", "verdict"),
    [("world", "confirmed"), ("dist.get_world_size(mine)", "not-observed"), ("3", "not-exercised")],
)
def test_the_number_of_a_loss(factor: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = finding_in("DDP807", tmp_path, monkeypatch, SCALED)
    run = traced_on_four(tmp_path, "train", SCALED.replace("* world", f"* {factor}"))
    assert rules()["DDP807"].verify(finding, run) == verdict
