"""What a predicted run takes from the machine that it is for: the version of torch, and the files that are there."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from ddp_audit.audit import Options
from ddp_audit.cli.prediction_check import machine_of, torch_of
from ddp_audit.compare.run import RecordedRun
from ddp_audit.explore.exact import predict
from ddp_audit.explore.exact.state import Machine
from ddp_audit.predicted import job_of
from ddp_audit.source.plain_pickle import NotPlain, load_plain

HEAD = """\
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
"""
ATTENTION = """\
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")
        if not self.flash:
            self.register_buffer("bias", torch.ones(2, 2))

    def forward(self, x):
        return self.inner(x)


model = DDP(Attention())
for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
"""


def buffers(folder: Path, monkeypatch: pytest.MonkeyPatch, target: str | None, text: str = ATTENTION) -> tuple[int, int]:
    """How many broadcasts of buffers are predicted, and how many conditions were taken for granted."""
    monkeypatch.chdir(folder)
    Path("train.py").write_text(HEAD + text)
    job = job_of(["train.py"], Options(target_torch=target, defaults_hold=True))
    assert job is not None
    run = predict(job)
    return sum(event.origin == "ddp-buffers" for event in run.sequences[0]), len(run.assumptions)


@pytest.mark.parametrize(("target", "expected"), [("2.0", 0), ("2.13", 0), ("1.13", 2)])
def test_the_torch_that_is_aimed_at_decides(target: str, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert buffers(tmp_path, monkeypatch, target) == (expected, 0)
    aliased = ATTENTION.replace("hasattr(torch.nn.functional", "hasattr(F")
    assert buffers(tmp_path, monkeypatch, target, aliased) == (expected, 0)


def test_the_text_of_the_version_is_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(f"{HEAD}if torch.__version__ == '2.13.0+cpu':\n    dist.barrier()\n")
    job = job_of(["train.py"], Options(defaults_hold=True))
    assert job is not None
    assert [len(predict(replace(job, machine=Machine(text))).collectives(0)) for text in ("2.13.0+cpu", "2.13.0+cu128")] == [1, 0]


def test_files_that_were_there_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("")
    (tmp_path / "folder").mkdir()
    start = (tmp_path / "folder").stat().st_mtime + 1
    recorded = RecordedRun(2, meta={"cwd": str(tmp_path), "start": start, "torch": "2.13.0+cpu"})
    machine = machine_of(recorded)
    assert machine.kind_at is not None
    assert (machine.torch, torch_of(recorded)) == ("2.13.0+cpu", (2, 13))
    assert [machine.kind_at(path) for path in ("old.txt", "folder", "gone", str(tmp_path / "old.txt"))] == [
        "file",
        "folder",
        "",
        "file",
    ]
    later = machine_of(RecordedRun(2, meta={"cwd": str(tmp_path), "start": start - 100})).kind_at
    assert later is not None
    assert later("old.txt") is None  # the run may have made it
    assert later("a\0b") is None
    assert torch_of(RecordedRun(2, meta={"torch": "unknown"})) is None


VOCABULARY = """\
import pickle

path = os.path.join("data", "meta.pkl")
found = None
if os.path.exists(path):
    with open(path, "rb") as f:
        meta = pickle.load(f)
    found = meta["vocab_size"]
size = found if found is not None else 50304
dist.all_reduce(torch.ones(size))
"""


class Hostile:
    """Would write a file if it were loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return open, ("written", "w")


@pytest.mark.parametrize(
    ("content", "numel", "assumed", "said"),
    [
        (pickle.dumps({"vocab_size": 65, "itos": {1: "a"}, "stoi": {"a": 1}}), 65, 0, ""),
        (pickle.dumps({"vocab_size": Hostile()}), 50304, 1, "refers to"),
        (b"not a pickle", 50304, 1, "damaged"),
        (b"\x80\x04r\xff\xff\xff\x7f.", 50304, 1, "damaged"),  # a place in the memo for which C would make room
        (pickle.dumps([list(range(100))] * 10_000), 50304, 1, "too many values"),
        (None, 50304, 0, ""),
    ],
)
def test_the_vocabulary_of_the_data(
    content: bytes | None, numel: int, assumed: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + VOCABULARY)
    Path("data").mkdir()
    if content is not None:
        Path("data/meta.pkl").write_bytes(content)
    job = job_of(["train.py"], Options(defaults_hold=True))
    assert job is not None
    record = RecordedRun(2, meta={"cwd": str(tmp_path), "start": tmp_path.stat().st_mtime + 100})
    run = predict(replace(job, machine=machine_of(record)))
    assert [event.numel for event in run.collectives(0)] == [numel]
    assert len(run.assumptions) == assumed
    assert any(said in note for note in run.notes) if said else not run.notes
    assert not Path("written").exists()
    unknown = predict(job)  # of another machine
    assert len(unknown.assumptions) == 1


def test_plain_pickles() -> None:
    whole = {"a": [1, 2.5, "x", None, True, b"b", (1, 2)], 3: {}}
    assert load_plain(pickle.dumps(whole)) == whole
    loop: list[object] = []
    loop.append(loop)
    for value in (loop, {1, 2}, Path("x"), len, 1j):
        with pytest.raises(NotPlain):
            load_plain(pickle.dumps(value))
    with pytest.raises(NotPlain, match="too large"):
        load_plain(b"x" * 2_000_000)
