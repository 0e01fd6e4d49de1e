"""Notebooks: their code cells are one script, findings tell cell and line, magics are passed over and said so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.source.files import SourceError
from ddp_audit.source.notebook import read_notebook

CELLS = [
    ("markdown", "# Training"),
    ("code", "%matplotlib inline\n!pip install torch\nimport torch\nimport torch.distributed as dist\nn = 7\nrest = (n\n    % 2)"),
    ("code", "%%bash\nls 'not python"),
    (
        "code",
        "files = !ls\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n    !nvidia-smi\n    dist.barrier()\ndist.destroy_process_group?",
    ),
]


def notebook(cells: list[tuple[str, str]], language: str = "python") -> str:
    made = [{"cell_type": kind, "source": text.splitlines(keepends=True), "metadata": {}} for kind, text in cells]
    return json.dumps({"cells": made, "metadata": {"language_info": {"name": language}}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_findings_tell_cell_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.ipynb").write_text(notebook(CELLS))
    assert main(["check", "--format", "json", "train.ipynb"]) == 1
    found = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["code"] == "DDP201"]
    assert [(f["path"], f["message"].partition(":")[0]) for f in found] == [("train.ipynb", "Cell 4, line 5")]
    assert main(["check", "--format", "text", "."]) == 1
    said = capsys.readouterr().out
    assert "train.ipynb: 7 lines of magics and shell commands were passed over." in said
    assert "DDP201" in said


def test_what_looks_like_a_magic_and_goes_on_with_an_expression_is_kept() -> None:
    book = read_notebook(notebook(CELLS).encode(), "train.ipynb")
    assert "    % 2)" in book.text and "pass  # %matplotlib inline" in book.text
    assert book.starts == ((1, 2), (8, 3), (10, 4))
    assert book.place(9) == (3, 2)


def test_a_fix_leaves_a_notebook_alone(capsys: pytest.CaptureFixture[str]) -> None:
    cell = (
        "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"
        "dist.init_process_group('gloo')\nmodel = DDP(torch.nn.Linear(2, 2))\nloss = model(torch.ones(2)).sum()\n"
        "model.require_backward_grad_sync = False\nloss.backward()\n"
    )
    Path("train.ipynb").write_text(text := notebook([("code", cell)]))
    assert main(["check", "--fix", "--unsafe-fixes", "--select", "DDP112", "train.ipynb"]) == 1
    assert "not mended: a notebook is not mended" in capsys.readouterr().err
    assert Path("train.ipynb").read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a Jupyter notebook"),
        ('{"worksheets": []}', "is not a Jupyter notebook"),
        (notebook([("code", "x <- 1")], "R"), "is a notebook in r, not in Python"),
        (notebook([("markdown", "a"), ("code", "x = 1"), ("code", "y = (\n")]), "cell 3, line 1:"),
    ],
)
def test_what_is_no_python_notebook_is_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.ipynb").write_text(text)
    assert main(["check", "--format", "json", "other.ipynb"]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert len(errors) == 1 and message in errors[0]["message"]


def test_notebooks_of_a_folder_that_have_nothing_to_do_with_it_are_passed_by(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plot.ipynb").write_text(notebook([("code", "x <- 1")], "R"))
    Path("train.py").write_text("import torch.distributed\n")
    assert main(["check", "."]) == 0
    assert "2 files" in capsys.readouterr().out


def test_bytes_that_are_no_json() -> None:
    with pytest.raises(SourceError, match="is not a Jupyter notebook"):
        read_notebook(b"\xff\xfe", "a.ipynb")
