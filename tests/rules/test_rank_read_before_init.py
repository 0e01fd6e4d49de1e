"""Ranks that are read before there is a process group (DDP608), in forms that no case has, and look-alikes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_audit.audit import Options, audit

HEAD = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset



def info():
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def train(data, sampler=None):
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(data, batch_size=4, sampler=sampler):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


data = TensorDataset(torch.randn(64, 4))
"""
EARLY = {
    "numbers_of_a_sampler": """\
rank, world = info()
dist.init_process_group("gloo")
train(data, DistributedSampler(data, num_replicas=world, rank=rank))
""",
    "a_seed": """\
rank = info()[0]
dist.init_process_group("gloo")
torch.manual_seed(100 + rank)
train(data)
""",
    "a_dict_of_settings": """\
config = {"rank": info()[0], "lr": 0.1}
dist.init_process_group("gloo")
train(data)
if config["rank"] == 0:
    torch.save({}, "model.pt")
""",
    "a_share_by_slice": """\
rank, world = info()
dist.init_process_group("gloo")
rows = list(range(64))[rank::world]
train(TensorDataset(torch.randn(len(rows), 4)))
""",
    "an_exception_that_is_caught_in_a_helper": """\
def get_rank():
    try:
        return dist.get_rank()
    except ValueError:
        return 0


rank = get_rank()
dist.init_process_group("gloo")
train(data)
if rank == 0:
    torch.save({}, "model.pt")
""",
}
RIGHT = {
    "helpers_asked_in_time": """\
dist.init_process_group("gloo")
rank, world = info()
train(data, DistributedSampler(data, num_replicas=world, rank=rank))
""",
    "asked_in_both": """\
print("rank", info()[0])
dist.init_process_group("gloo")
train(data, DistributedSampler(data, num_replicas=info()[1], rank=info()[0]))
""",
    "numbers_of_the_launcher": """\
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", rank=rank, world_size=world)
train(data, DistributedSampler(data, num_replicas=world, rank=rank))
""",
    "used_before_only": """\
rank, world = info()
if rank == 0:
    print("parses its options")
dist.init_process_group("gloo")
train(data, DistributedSampler(data))
""",
    "a_device_count_that_is_no_rank": """\
def devices():
    return 3 if not dist.is_initialized() else 5


count = devices()
dist.init_process_group("gloo")
train(TensorDataset(torch.randn(16 * (count + 1), 4)))
""",
}


def codes(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(HEAD + text, encoding="utf-8")
    return [finding.code for finding in audit(["train.py"], Options(select=["DDP608"])).findings]


@pytest.mark.parametrize("name", EARLY)
def test_a_rank_that_was_read_too_early_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(EARLY[name], tmp_path, monkeypatch) == ["DDP608"]


@pytest.mark.parametrize("name", RIGHT)
def test_a_rank_that_was_read_in_time_is_not(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(RIGHT[name], tmp_path, monkeypatch) == []
