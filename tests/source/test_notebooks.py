"""Notebooks: their code cells are one script, findings tell cell and line, magics are passed over and said so."""

from __future__ import annotations

import ast
import io
import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddp_audit
import ddp_audit_rules
from ddp_audit.cli import main
from ddp_audit.source.files import SourceError
from ddp_audit.source.notebook import read_notebook
from ddp_audit.source.paths import CellLine, place_of

CELLS = [
    ("markdown", "# Training"),
    ("code", "%matplotlib inline\n!pip install torch\nimport torch\nimport torch.distributed as dist\nn = 7\nrest = (n\n    % 2)"),
    ("code", "%%bash\nls 'not python"),
    (
        "code",
        "files = !ls\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n    !nvidia-smi\n    dist.barrier()\ndist.destroy_process_group?",
    ),
]


TRAINING = [
    ("markdown", "# Training"),
    ("code", "import torch\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP\n"),
    (
        "code",
        "%time\ndist.init_process_group('gloo')\nmodel = DDP(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    ),
    (
        "code",
        "for step in range(20):\n    loss = model(torch.randn(4, 2)).sum()\n    with model.no_sync():\n        loss.backward()\n"
        "    optimizer.step()\n    optimizer.zero_grad()\n    if dist.get_rank() == 0:\n        model(\n            torch.randn(4, 2),\n        )\n",
    ),
    ("code", "dist.barrier()\ndist.destroy_process_group()"),
]


def notebook(cells: list[tuple[str, str]], language: str = "python", indent: int | None = None, whole: bool = False) -> str:
    made = [
        {"cell_type": kind, "metadata": {"source": ["no code"]}, "source": text if whole else text.splitlines(keepends=True)}
        for kind, text in cells
    ]
    document = {"cells": made, "metadata": {"language_info": {"name": language}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=indent)


def report(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    main(["check", *words])
    return capsys.readouterr().out


def findings(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(report(capsys, "--format", "json", *words))["findings"]
    return found


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_findings_tell_cell_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("train.ipynb").write_text(notebook(CELLS))
    assert main(["check", "--format", "json", "train.ipynb"]) == 1
    (found,) = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["code"] == "DDP201"]
    assert [found[key] for key in ("path", "cell", "line", "column", "end_line")] == ["train.ipynb", 4, 5, 5, 5]
    assert "ell" not in found["message"]
    assert [(r["cell"], r["line"], r["role"]) for r in found["related"]] == [(4, 3, "guard")]
    assert main(["check", "--format", "text", "."]) == 1
    said = capsys.readouterr().out
    assert "train.ipynb: 7 lines of magics and shell commands not read." in said
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
    assert "DDP112: no automatic fix: fixes are not applied to notebooks" in capsys.readouterr().err
    assert Path("train.ipynb").read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a Jupyter notebook"),
        ('{"worksheets": []}', "is not a Jupyter notebook"),
        (notebook([("code", "x <- 1")], "R"), "is a notebook in r, not in Python"),
        (notebook([("markdown", "a"), ("code", "x = 1"), ("code", "y = (\n")]), "was never closed"),
    ],
)
def test_what_is_no_python_notebook_is_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.ipynb").write_text(text)
    assert main(["check", "--format", "json", "other.ipynb"]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert len(errors) == 1 and message in errors[0]["message"]
    assert (errors[0]["cell"], errors[0]["line"]) == ((3, 1) if "closed" in message else (None, None))


def test_notebooks_of_a_folder_that_have_nothing_to_do_with_it_are_passed_by(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plot.ipynb").write_text(notebook([("code", "x <- 1")], "R"))
    Path("train.py").write_text("import torch.distributed\n")
    assert main(["check", "."]) == 0
    assert "2 files" in capsys.readouterr().out


def test_bytes_that_are_no_json() -> None:
    with pytest.raises(SourceError, match="is not a Jupyter notebook"):
        read_notebook(b"\xff\xfe", "a.ipynb")


def test_every_text_names_the_line_of_the_cell(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nb.ipynb").write_text(notebook(TRAINING, indent=1))
    said = report(capsys, "--format", "text", "nb.ipynb")
    assert "nb.ipynb:cell 4:8:9: DDP401 error" in said
    assert "    guard: nb.ipynb:cell 4:7: dist.get_rank() == 0: only rank 0 enters" in said
    assert "    wrap: nb.ipynb:cell 3:3: the DDP wrapper that is called" in said
    assert "the forward of line 2 of cell 4" in said  # a line that a rule writes into its message
    shown = report(capsys, "--format", "terminal", "nb.ipynb").splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("nb.ipynb:cell 4:8:9  error DDP401"))
    assert "     8 |         model(" in shown[at : at + 8] and "    10 |         )" in shown[at : at + 8]
    assert any("nb.ipynb:cell 3:3 the DDP wrapper that is called: model = DDP(" in line for line in shown[at:])
    run = report(capsys, "--format", "text", "--explain-run", "nb.ipynb")
    assert "nb.ipynb:cell 3:3" in run and "nb.ipynb:1" not in run


def test_a_predicted_run_names_the_cells(capsys: pytest.CaptureFixture[str]) -> None:
    late = [
        (kind, text.replace("range(20)", "range(5000)").replace("== 0:", "== 0 and step % 1000 == 999:")) for kind, text in TRAINING
    ]
    Path("nb.ipynb").write_text(notebook(late, indent=1))
    document = json.loads(report(capsys, "--format", "json", "--explain-run", "nb.ipynb"))
    assert any(text.startswith("DDP401 (line 8 of cell 4 of nb.ipynb) is not reached here") for text in document["run"]["beyond"])
    assert "(line 7 of cell 4)" in " ".join(document["run"]["beyond"])
    Path("nb.ipynb").write_text(notebook([*TRAINING[:3], ("code", "if dist.get_rank() == 0:\n    dist.barrier()\n")]))
    for _ in range(2):  # the second time from the cache
        document = json.loads(report(capsys, "--format", "json", "nb.ipynb"))
        (run,) = document["predicted"]["runs"]
        assert run["findings"] == [{"code": "DDP201", "path": "nb.ipynb", "cell": 4, "line": 2}]


def test_findings_come_in_the_order_of_the_cells(capsys: pytest.CaptureFixture[str]) -> None:
    guarded = "if dist.get_rank() == 0:\n    dist.barrier()\n"
    cells = [("code", "import torch.distributed as dist\ndist.init_process_group('gloo')\n\n\n\n" + guarded)]
    cells += [("code", guarded)] * 10 + [("code", "dist.destroy_process_group()")]
    Path("nb.ipynb").write_text(notebook(cells))
    found = findings(capsys, "nb.ipynb", "--select", "DDP201")
    assert [(f["cell"], f["line"]) for f in found] == [(1, 7), *((cell, 2) for cell in range(2, 12))]
    assert len({f["fingerprint"] for f in found}) == 11


@pytest.mark.parametrize(("indent", "whole"), [(1, False), (None, False), (1, True)])
def test_formats_without_cells_name_a_line_of_the_file(indent: int | None, whole: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Path("nb.ipynb").write_text(text := notebook(TRAINING, indent=indent, whole=whole))
    lines = text.split("\n")
    first, last, guard = (1 + [place in line for line in lines].index(True) for place in ("  model(", "  )", "if dist.get_rank"))
    assert (first < last) == (indent is not None and not whole)
    annotation = next(line for line in report(capsys, "--format", "github", "nb.ipynb").splitlines() if "title=DDP401" in line)
    assert annotation.startswith(f"::error file=nb.ipynb,line={first},endLine={last},title=DDP401")
    assert "%0Aplace: nb.ipynb:cell 4:8:9%0Aguard: nb.ipynb:cell 4:7: " in annotation
    issue = next(i for i in json.loads(report(capsys, "--format", "gitlab", "nb.ipynb")) if i["check_name"] == "DDP401")
    assert issue["location"]["lines"] == {"begin": first, "end": last} and issue["description"].endswith("(cell 4, line 8)")
    (run,) = json.loads(report(capsys, "--format", "sarif", "nb.ipynb"))["runs"]
    result = next(one for one in run["results"] if one["ruleId"] == "DDP401")
    (place,) = result["locations"]
    assert place["physicalLocation"]["region"] == {"startLine": first, "endLine": last}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "cell 4, line 8"
    assert result["relatedLocations"][0]["physicalLocation"]["region"] == {"startLine": guard}
    assert "fixes" not in result
    root = ElementTree.fromstring(report(capsys, "--format", "junit", "nb.ipynb"))
    assert "DDP401 rank0-forward-through-wrapper cell 4:8:9" in [case.get("name") for case in root.iter("testcase")]


BROKEN = [("code", "import torch.distributed as dist\n"), ("code", "a = 1\n\ndef f():\nreturn 2\n"), ("code", "b = 2")]


def test_a_syntax_error_stands_in_its_cell(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nb.ipynb").write_text(text := notebook(BROKEN, indent=1))
    line = 1 + ["return 2" in one for one in text.split("\n")].index(True)
    said = report(capsys, "--format", "text", "nb.ipynb")
    assert said.startswith("error: nb.ipynb:cell 2:4: expected an indented block after function definition on line 3")
    (error,) = json.loads(report(capsys, "--format", "json", "nb.ipynb"))["errors"]
    assert (error["cell"], error["line"]) == (2, 4)
    assert report(capsys, "--format", "github", "nb.ipynb").startswith(f"::error file=nb.ipynb,line={line},title")
    (issue,) = json.loads(report(capsys, "--format", "gitlab", "nb.ipynb"))
    assert issue["location"]["lines"] == {"begin": line, "end": line}
    (run,) = json.loads(report(capsys, "--format", "sarif", "nb.ipynb"))["runs"]
    (place,) = run["invocations"][0]["toolExecutionNotifications"][0]["locations"]
    assert place["physicalLocation"]["region"] == {"startLine": line}


GUARDED = "import torch.distributed as dist\ndist.init_process_group('gloo')\nif dist.get_rank() == 0:\n{}    dist.barrier()\n"


def test_a_comment_holds_in_its_cell_alone(capsys: pytest.CaptureFixture[str]) -> None:
    comment = "# ddp-audit: ignore[DDP201] rank 0 is alone in it"
    Path("nb.ipynb").write_text(notebook([("code", GUARDED.format(f"    {comment}\n"))]))
    assert findings(capsys, "nb.ipynb", "--select", "DDP2,DDP903") == []
    split = [("code", "import torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n" + comment)]
    split.append(("code", "rank == 0 and dist.barrier()"))
    Path("nb.ipynb").write_text(notebook(split))
    found = findings(capsys, "nb.ipynb", "--select", "DDP2,DDP903")
    assert [(f["code"], f["cell"], f["line"]) for f in found] == [("DDP903", 1, 4), ("DDP201", 2, 1)]
    Path("nb.ipynb").write_text(notebook([*split, ("code", "# ddp-audit: ignore-file[DDP201]")]))
    assert [f["code"] for f in findings(capsys, "nb.ipynb", "--select", "DDP2")] == []


def test_a_baseline_knows_a_finding_whose_cell_moved(capsys: pytest.CaptureFixture[str]) -> None:
    Path("nb.ipynb").write_text(notebook([("code", GUARDED.format(""))]))
    assert main(["check", "nb.ipynb", "--select", "DDP201", "--write-baseline", "known.json"]) == 0
    (entry,) = json.loads(Path("known.json").read_text())["findings"]
    assert (entry["cell"], entry["line"]) == (1, 4)
    moved = [("markdown", "# New"), ("code", "x = 1\n"), ("code", "\n" + GUARDED.format("    x = 2\n"))]
    Path("nb.ipynb").write_text(notebook(moved))
    capsys.readouterr()
    assert main(["check", "nb.ipynb", "--select", "DDP201", "--baseline", "known.json"]) == 0
    assert "0 new, 1 known, 0 gone" in capsys.readouterr().out


def test_standard_input_can_be_a_notebook(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("nb.ipynb").write_text(text := notebook(TRAINING, indent=1))
    from_disk = {form: report(capsys, "--format", form, "nb.ipynb") for form in ("text", "json", "sarif", "github")}
    Path("nb.ipynb").unlink()
    for form, expected in from_disk.items():
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        assert report(capsys, "--format", form, "-", "--stdin-filename", "nb.ipynb") == expected


@pytest.mark.parametrize("form", ["terminal", "json", "sarif", "github", "gitlab"])
def test_the_cache_gives_the_same_places(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("nb.ipynb").write_text(notebook(TRAINING, indent=1))
    once = report(capsys, "--format", form, "--no-cache", "nb.ipynb")
    first = report(capsys, "--format", form, "nb.ipynb")
    assert first == once and report(capsys, "--format", form, "nb.ipynb") == once
    assert report(capsys, "--format", form, "--no-cache", "--jobs", "2", "nb.ipynb") == once


def test_a_line_of_a_cell_is_a_number_that_writes_itself() -> None:
    line = CellLine(20, 3, 4)
    assert line == 20 and line + 1 == 21 and json.dumps(line) == "20" and f"{line:d}" == "20"
    assert f"line {line}" == "line 4 of cell 3" and place_of("nb.ipynb", line, 5) == "nb.ipynb:cell 3:4:5"
    again = pickle.loads(pickle.dumps(line))
    assert (again, again.cell, again.inner) == (20, 3, 4)


_TEXT = st.text(st.sampled_from('ab"\\ \té\U0001f600{}[],:'), max_size=6)
_CELL = st.lists(_TEXT, min_size=1, max_size=5).map("\n".join)


@given(
    st.lists(st.tuples(st.sampled_from(["code", "markdown"]), _CELL), min_size=1, max_size=4),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_each_line_is_found_in_the_file(cells: list[tuple[str, str]], indent: int | None, escaped: bool) -> None:
    """Each line of a cell has a mark of its own, which stands in that line of the file and nowhere else."""
    marked = [
        (kind, "\n".join(f"{line}# {number}.{row}!" for row, line in enumerate(text.split("\n"), 1)))
        for number, (kind, text) in enumerate(cells, 1)
    ]
    made = [{"source": text.splitlines(keepends=True), "cell_type": kind} for kind, text in marked]
    data = json.dumps({"metadata": {"cells": [{"source": "no"}]}, "cells": made}, indent=indent, ensure_ascii=escaped).encode()
    book = read_notebook(data, "nb.ipynb")
    lines = data.decode().split("\n")
    for number, (kind, text) in enumerate(marked, 1):
        for row in range(1, len(text.split("\n")) + 1):
            if kind == "code":
                assert f"# {number}.{row}!" in lines[book.file_line(number, row) - 1]
                assert f"# {number}.{row}!" in book.cells[number][row - 1]


def test_code_of_an_audit_writes_places_in_one_way() -> None:
    """A place is written by `place_of` and what uses it: `{x.path}:{x.line}` in a text would be wrong in a notebook."""
    folders = [
        *ddp_audit_rules.__path__,
        *(f"{top}/{name}" for top in ddp_audit.__path__ for name in ("program", "explore", "launch")),
    ]
    written = []
    for path in sorted(file for folder in folders for file in Path(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                for first, colon, line in zip(node.values, node.values[1:], node.values[2:], strict=False):
                    ends = [getattr(getattr(part, "value", None), "attr", "") for part in (first, line)]
                    if ends == ["path", "line"] and isinstance(colon, ast.Constant) and colon.value == ":":
                        written.append(f"{path.name}:{node.lineno}")
    assert written == []
