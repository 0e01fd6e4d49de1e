"""Settings that differ between ranks (DDP116), in forms that no case has, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

HEAD = """\
import json
import random
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DDP(torch.nn.Linear(4, 1))


def train(optimizer, before=lambda: None):
    for step in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).sum().backward()
        before()
        optimizer.step()


"""
DIFFERENT = {
    "an_expression": "train(torch.optim.SGD(model.parameters(), lr=0.1 / (rank + 1)))\n",
    "by_position": "train(torch.optim.Adam(model.parameters(), 1e-3 if rank == 0 else 1e-4))\n",
    "a_group_that_is_changed": """\
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
if rank == 1:
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.5
train(optimizer)
""",
    "under_a_scheduler": """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1))
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
train(optimizer, scheduler.step)
""",
    "clipped_by_value": """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(optimizer, lambda: torch.nn.utils.clip_grad_value_(model.parameters(), clip_value=1.0 + rank))
""",
}
EQUAL = {
    "scaled_by_the_world_size": "train(torch.optim.SGD(model.parameters(), lr=0.1 * world, weight_decay=1e-4 / world))\n",
    "seeds_of_a_rank": "torch.manual_seed(rank)\ntrain(torch.optim.SGD(model.parameters(), lr=0.1))\n",
    "drawn_on_rank_0_and_sent": """\
rate = torch.tensor(random.random() if rank == 0 else 0.0)
dist.broadcast(rate, src=0)
train(torch.optim.SGD(model.parameters(), lr=rate.item()))
""",
    "read_from_a_file_by_all": "train(torch.optim.SGD(model.parameters(), lr=json.load(open('c.json'))['lr']))\n",
    "a_network_of_each_rank": """\
train(torch.optim.SGD(model.parameters(), lr=0.1))
own = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(own.parameters(), lr=0.1 * (rank + 1))
own(torch.randn(8, 4)).sum().backward()
torch.nn.utils.clip_grad_norm_(own.parameters(), 1.0 + rank)
optimizer.step()
""",
}


def codes(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(HEAD + text, encoding="utf-8")
    return [finding.code for finding in audit(["train.py"], Options(select=["DDP116"])).findings]


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_setting_that_differs_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(DIFFERENT[name], tmp_path, monkeypatch) == ["DDP116"]


@pytest.mark.parametrize("name", EQUAL)
def test_a_setting_that_is_equal_is_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(EQUAL[name], tmp_path, monkeypatch) == []
