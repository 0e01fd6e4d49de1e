"""DDP701 and DDP702 where Accelerate runs the job: its statements run on all processes, as those of a script of one's own do."""

from __future__ import annotations

from pathlib import Path

import pytest
from found import audited, findings

JOB = """\
import os
import torch
from accelerate import Accelerator
from torchvision import datasets

accelerator = Accelerator()
BEFORE
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
for step in range(4):
    accelerator.backward(model(torch.randn(8, 4)).mean())
    optimizer.step()
    optimizer.zero_grad()
AFTER
"""
FETCHED = [
    "rows = datasets.CIFAR10('data', download=True)",
    "if os.environ['SET'] == 'a':\n    rows = datasets.MNIST('data', download=True)",
]
ONCE = [
    "if accelerator.is_main_process:\n    datasets.CIFAR10('data', download=True)\naccelerator.wait_for_everyone()",
    "with accelerator.main_process_first():\n    rows = datasets.CIFAR10('data', download=True)",
    "with accelerator.local_main_process_first():\n    rows = datasets.CIFAR10('data', download=True)",
    "rows = datasets.CIFAR10('data')",
]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(before: str = "", after: str = "") -> str:
    return JOB.replace("BEFORE", before).replace("AFTER", after)


@pytest.mark.parametrize("fetch", FETCHED)
def test_every_process_fetches(fetch: str, tmp_path: Path) -> None:
    assert len(findings("DDP702", audited(tmp_path, job(fetch)))) == 1


@pytest.mark.parametrize("fetch", ONCE)
def test_one_process_fetches(fetch: str, tmp_path: Path) -> None:
    assert findings("DDP702", audited(tmp_path, job(fetch))) == []


def test_every_process_saves(tmp_path: Path) -> None:
    save = "torch.save(accelerator.unwrap_model(model).state_dict(), 'a.pt')"
    assert len(findings("DDP701", audited(tmp_path, job(after=save)))) == 1
    alone = f"if accelerator.is_main_process:\n    {save}"
    assert findings("DDP701", audited(tmp_path, job(after=alone))) == []
    assert findings("DDP701", audited(tmp_path, job(after="accelerator.save(model.state_dict(), 'a.pt')"))) == []
