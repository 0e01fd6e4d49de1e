"""Local SGD: replicas that are meant to differ for some steps, because the program averages their parameters by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from compare_events import all_reduce, rank_run, recorded, site

from ddp_audit.compare.silent import silent_faults
from ddp_audit.events import FORWARD, PARAMETERS, STEP, WRAP, Event

WRAPPED = Event(WRAP, detail={"model": "ddp0", "parameters": [["a", 12, "float32"], ["b", 4, "float32"]]})
FORWARDS = Event(FORWARD, detail={"model": "ddp0", "grad": True})
LOCAL = Event(STEP, site=site(30), stack=(site(30),), detail={"models": ["ddp0"], "unreduced": True})


def hashed(value: str, step: int, at: str = "step") -> Event:
    return Event(PARAMETERS, stack=(site(30),), detail={"model": "ddp0", "hash": value, "step": step, "at": at})


def kinds(*ranks: list[Event]) -> list[str]:
    return [fault.kind for fault in silent_faults(recorded(*(rank_run(n, events) for n, events in enumerate(ranks))))]


def steps(rank: str, averages: dict[int, list[Event]], end: str = "") -> list[Event]:
    found = [WRAPPED]
    for number in range(1, 7):
        found += [FORWARDS, LOCAL, hashed(f"{rank}{number}", number), *averages.get(number, [])]
    return [*found, *([hashed(end, 6, "exit")] if end else [])]


AVERAGE = [all_reduce(40, 12), all_reduce(40, 4)]
BOTH = ["gradients-not-reduced", "parameters-differ"]


@pytest.mark.parametrize(
    ("averages", "ends", "found"),
    [
        ({3: AVERAGE, 6: AVERAGE}, ("x", "x"), []),
        ({3: AVERAGE, 6: AVERAGE}, ("", ""), []),
        ({3: AVERAGE}, ("x", "y"), []),  # steps follow the last average
        ({3: [all_reduce(40, 16)]}, ("", ""), []),  # flattened
        ({3: AVERAGE, 6: AVERAGE}, ("x", "y"), BOTH),  # something else was brought together
        ({n: [all_reduce(40, 1)] for n in range(1, 7)}, ("", ""), BOTH),  # a metric
        ({3: AVERAGE[:1]}, ("", ""), BOTH),
        ({}, ("", ""), BOTH),
    ],
)
def test_averages_of_parameters(averages: dict[int, list[Event]], ends: tuple[str, str], found: list[str]) -> None:
    assert kinds(steps("a", averages, ends[0]), steps("b", averages, ends[1])) == found


def test_all_ranks_have_to_average() -> None:
    assert kinds(steps("a", {3: AVERAGE}), steps("b", {})) == BOTH
    nameless = [Event(STEP, site=site(30), stack=(site(30),), detail={"unreduced": True})]
    assert kinds(nameless, nameless) == BOTH[:1]


def test_only_what_the_program_reduces_after_a_step_is_an_average() -> None:
    own = replace(all_reduce(40, 16), origin="ddp-bucket")
    assert kinds(*[[WRAPPED, FORWARDS, all_reduce(40, 16), LOCAL, hashed(rank, 1)] for rank in "ab"]) == BOTH
    assert kinds(*[[WRAPPED, FORWARDS, LOCAL, own, hashed(rank, 1)] for rank in "ab"]) == BOTH
    assert kinds(*[[WRAPPED, FORWARDS, LOCAL, hashed(rank, 1), all_reduce(40, 16)] for rank in "ab"]) == []


PROGRAM = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DDP(torch.nn.Linear(4, 2))
own = torch.nn.Linear(2, 2)
groups = [{"params": model.parameters(), "lr": 0.1}, {"params": own.parameters(), "lr": 0.1 * (1 + rank)}]
optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
for step in range(7):
    with model.no_sync():
        own(model(torch.randn(3, 4))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 3 == 2:
        for p in model.parameters():
            dist.all_reduce(p.data)
            p.data /= 2
dist.destroy_process_group()
"""


@pytest.mark.traced
@pytest.mark.parametrize("averages", [True, False])
def test_a_real_run(averages: bool, tmp_path: Path) -> None:
    """Settings of parameters that are in no wrapper may differ between ranks too."""
    pytest.importorskip("torch")
    from ddp_audit.trace.columns import load_columns
    from ddp_audit.trace.store import load_run

    text = PROGRAM if averages else PROGRAM.replace("step % 3 == 2", "step < 0")
    (tmp_path / "train.py").write_text(text)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    words = [sys.executable, "-m", "ddp_audit", "trace", "--no-check", "--dir", "kept", "--", *launch]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == (0 if averages else 1), done.stdout + done.stderr
    for run in (load_run(tmp_path / "kept"), load_columns(tmp_path / "kept")[0]):
        assert [fault.kind for fault in silent_faults(run)] == ([] if averages else BOTH)
