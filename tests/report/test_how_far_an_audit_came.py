"""How far an audit came: what it says of scripts that were followed to the end, through several steps, in part, or not as scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.audit import audit
from ddp_audit.cli import main
from ddp_audit.outcome import AuditResult, Coverage, NotFollowed
from ddp_audit.report.causes import coverage_line

HEAD = """\
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEPS = """\
for x in {over}:
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
END = "dist.destroy_process_group()\n"
THREE = "[torch.ones(2, 2)] * 3"
WHOLE = HEAD + STEPS.format(over=THREE) + END


def covered(folder: Path, text: str, **files: str) -> AuditResult:
    for name, content in {"train": text, **files}.items():
        (folder / f"{name}.py").write_text(content, encoding="utf-8")
    return audit(["train.py"])


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_script_that_is_followed_to_its_end(tmp_path: Path) -> None:
    result = covered(tmp_path, WHOLE)
    assert result.coverage is not None and result.coverage.complete
    assert result.coverage.reached == ["process-group", "wrapper", "training-loop", "step"]
    assert coverage_line(result) == "Coverage: 1 file read; train.py followed to the end"


def test_a_run_that_hangs_for_sure_ends_there(tmp_path: Path) -> None:
    result = covered(tmp_path, HEAD + "if dist.get_rank() == 0:\n    dist.barrier()\n" + STEPS.format(over=THREE))
    assert coverage_line(result) == "Coverage: 1 file read; train.py followed to the end"


@pytest.mark.parametrize(
    "loop",
    [
        STEPS.format(over="torch.utils.data.DataLoader(torch.load('set.pt'))"),
        STEPS.format(over=f"{THREE} * 100000"),
        "while True:\n" + "".join(f"    {line}\n" for line in STEPS.format(over=THREE).splitlines()),
    ],
)
def test_a_long_training_is_followed_through_several_steps(tmp_path: Path, loop: str) -> None:
    result = covered(tmp_path, HEAD + loop + END)
    assert result.coverage is not None and not result.coverage.complete
    assert coverage_line(result) == "Coverage: 1 file read; train.py followed through several steps"


def test_what_is_not_followed_is_named_with_its_place(tmp_path: Path) -> None:
    text = HEAD + "import unheard\nunheard.sync_everything(model)\n" + STEPS.format(over=THREE) + END
    result = covered(tmp_path, text)
    assert coverage_line(result) == (
        "Coverage: 1 file read; train.py followed in part; not followed: train.py:9: "
        "unheard.sync_everything may communicate, and its source is not in the project"
    )


def test_a_place_in_an_imported_file_has_the_path_of_that_file(tmp_path: Path) -> None:
    helper = "import unheard\n\n\ndef prepare(x):\n    return unheard.all_reduce_all(x)\n"
    result = covered(tmp_path, HEAD + "import helper\nhelper.prepare(model)\n" + END, helper=helper)
    assert result.coverage is not None
    assert [(place.path, place.line) for place in result.coverage.not_followed][:1] == [("helper.py", 5)]
    assert coverage_line(result).startswith("Coverage: 2 files read; train.py followed in part; no optimizer step found; ")


def test_calls_that_are_nested_too_deeply(tmp_path: Path) -> None:
    chain = "".join(f"def f{n}(x):\n    return f{n + 1}(x)\n" for n in range(40)) + "def f40(x):\n    dist.barrier()\n"
    result = covered(tmp_path, HEAD + chain + "f0(1)\n" + STEPS.format(over=THREE) + END)
    assert result.coverage is not None and result.coverage.scripts[0].followed == "in-part"
    assert any("nested deeper than" in str(place) and place.line is None for place in result.coverage.not_followed)


def test_a_file_that_no_script_calls(tmp_path: Path) -> None:
    body = "".join(f"    {line}\n" for line in STEPS.format(over="batches").splitlines())
    result = covered(tmp_path, "import torch\n\n\ndef train(model, optimizer, batches):\n" + body)
    assert coverage_line(result) == "Coverage: 1 file read; 1 file that no script here calls read function by function"


def test_a_file_without_training_and_what_was_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = covered(tmp_path, "import os\nprint(os.name)\n")
    assert coverage_line(result) == "Coverage: 1 file read, no training found"
    assert main(["train.py"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Looked at: train.py",
        "Coverage: 1 file read, no training found",
        "No hazards found in 1 file.",
    ]


def test_several_scripts_are_counted_by_how_far_they_were_followed(tmp_path: Path) -> None:
    for name, text in {"a": WHOLE, "b": WHOLE, "c": HEAD + "import unheard\nunheard.barrier()\n", "d": "import torch\n"}.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    result = audit(["a.py", "b.py", "c.py", "d.py"])
    assert coverage_line(result).startswith(
        "Coverage: 4 files read; 3 training scripts: 2 followed to the end, 1 followed in part; no optimizer step found in 1 of them; "
        "not followed: c.py:9: unheard.barrier"
    )


def cell(text: str) -> dict[str, Any]:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text}


def test_a_place_in_a_notebook_has_its_cell(tmp_path: Path) -> None:
    cells = [cell("import unheard"), cell(HEAD), cell("x = 1\nunheard.all_gather(model)")]
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (tmp_path / "nb.ipynb").write_text(json.dumps(book), encoding="utf-8")
    result = audit(["nb.ipynb"])
    assert result.coverage is not None
    assert [(place.cell, place.line) for place in result.coverage.not_followed][:1] == [(3, 2)]
    assert "nb.ipynb:cell 3:2: unheard.all_gather" in coverage_line(result)


def test_what_comes_from_the_cache_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = HEAD + "import unheard\nunheard.sync_everything(model)\n" + END
    fresh = covered(tmp_path, text).coverage
    assert fresh is not None and Coverage.from_json(fresh.to_json()) == fresh
    said = []
    for _ in range(2):
        main(["train.py", "--format", "json"])
        said.append(json.loads(capsys.readouterr().out)["coverage"])
    (tmp_path / "other.py").write_text("import torch\n", encoding="utf-8")
    main(["train.py", "other.py", "--format", "json"])  # another audit, with what is kept of single scripts
    said.append(json.loads(capsys.readouterr().out)["coverage"])
    assert said == [fresh.to_json()] * 3


@pytest.mark.parametrize("form", ["full", "text", "concise", "grouped", "markdown"])
def test_every_report_for_people_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    covered(tmp_path, WHOLE)
    main(["train.py", "--format", form])
    shown = capsys.readouterr().out.replace("\\", "")
    assert shown.count("Coverage: 1 file read; train.py followed to the end") == 1


def test_a_place_as_text() -> None:
    assert str(NotFollowed("train.py", None, "calls nested too deeply")) == "train.py: calls nested too deeply"
    assert str(NotFollowed("nb.ipynb", 4, "what f does", cell=2)) == "nb.ipynb:cell 2:4: what f does"
