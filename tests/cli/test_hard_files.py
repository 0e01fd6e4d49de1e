"""Files that are no usual ones: nested deeply, of odd names, links, pipes, broken notebooks. One line each, and nothing else is lost."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ddp_audit.cli import main
from ddp_audit.source.config import FORMATS

HEAD = "import torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nrank = dist.get_rank()\n"
HAZARD = "if rank == 0:\n    dist.barrier()\n"
TERMS = 3_000


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, list[tuple[str, int]], list[str]]:
    """Exit code, path and line of each DDP201, and the errors as lines."""
    code = main([*words, "--format", "json", "--no-cache"])
    said = capsys.readouterr()
    assert said.err == ""
    document = json.loads(said.out)
    errors = [f"{error['path']}: {error['message']}" for error in document["errors"]]
    assert not any("\n" in error for error in errors)
    return code, [(f["path"], f["line"]) for f in document["findings"] if f["code"] == "DDP201"], errors


@pytest.mark.parametrize(
    "text",
    [
        "x = " + " + ".join(f"a{i}" for i in range(TERMS)) + "\n",
        "x = a" + ".b" * TERMS + "\n",
        "x = a" + ".b()" * (TERMS // 2) + "\n",
        "if rank == 5:\n    x = 1\n" + "".join(f"elif rank == {i + 5}:\n    x = {i}\n" for i in range(1_000)),
        "x = " + " ".join(f"{i} if y == {i} else" for i in range(500)) + " 0\n",
        "x = " + "lambda: " * 400 + "1\n",
        "x = " + "[" * 150 + "]" * 150 + "\n",
        "".join(" " * i + f"if y > {i}:\n" for i in range(95)) + " " * 95 + "x = 1\n",
        "@f\n" * 2_000 + "def g(): pass\n",
        "x = '" + "x" * 1_000_000 + "'\n",
    ],
    ids=["sum", "attributes", "calls", "elif", "conditional", "lambda", "lists", "ifs", "decorators", "line"],
)
def test_what_python_runs_is_audited_however_deep(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(HEAD + text + HAZARD)
    code, found, errors = report(capsys, "train.py")
    assert (code, errors) == (1, [])
    assert found == [("train.py", (HEAD + text + HAZARD).count("\n"))]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"x = " + b"(" * 1_000 + b")" * 1_000 + b"\n", "too many nested parentheses"),
        (b"x = " + b"-" * 200_000 + b"1\n", "is nested too deeply to be parsed"),
        (b"a = 1\n\x00\n", "contains null bytes"),
        ("a = 1\n".encode("utf-16"), "is not UTF-8 and has no coding comment"),
        (b"# coding: utf-16\na = 12\n", "the coding comment names utf-16, in which no source can be written"),
        (b"# coding: rot13\na = 1\n", "the coding comment names an unknown encoding: rot13"),
        (b"if a:\n\tx = 1\n        y = 2\n", "inconsistent use of tabs and spaces in indentation"),
    ],
    ids=["parentheses", "minus", "null", "utf-16", "coding", "rot13", "tabs"],
)
def test_what_cannot_be_parsed_is_one_line_and_the_rest_is_audited(
    data: bytes, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "odd.py").write_bytes(data)
    (folder / "train.py").write_text(HEAD + HAZARD)
    assert report(capsys, ".") == (2, [("train.py", 6)], [f"odd.py: {message}"])


def test_what_is_no_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(HEAD + HAZARD)
    (folder / "folder.py").mkdir()
    os.mkfifo(folder / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.py")
    for name, target in {"gone.py": "nowhere.py", "self.py": "self.py", "loop": ".", "device.py": "/dev/zero"}.items():
        (folder / name).symlink_to(target)
    assert report(capsys, ".") == (1, [("train.py", 6)], [])
    words = {
        "folder.py": "no Python files in this directory",
        "pipe.py": "is not a regular file",
        "socket.py": "is not a regular file",
        "gone.py": "is a symbolic link that leads nowhere",
        "self.py": "is a symbolic link that leads nowhere",
        "device.py": "is not a regular file",
    }
    expected = [f"{name}: {text}" for name, text in sorted(words.items())]
    assert report(capsys, *words, "train.py") == (2, [("train.py", 6)], expected)
    assert main([""]) == 2
    assert capsys.readouterr().err == "ddp-audit: an empty text is not a path (is a variable unset?)\n"


@pytest.mark.parametrize("name", ["two words.py", "two\nlines.py", os.fsdecode(b"\xff\xfe.py")])
def test_any_name_in_any_format(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / name).write_text(HEAD.replace("gloo", "nccl") + HAZARD)
    said: dict[str, str] = {}
    for form in FORMATS:
        assert main([name, "--format", form, "--output", "report"]) == 1
        said[form] = (folder / "report").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""
    assert [f["path"] for f in json.loads(said["json"])["findings"]] == [name] * 2  # it leads to the file
    assert len(json.loads(said["sarif"])["runs"][0]["results"]) == len(json.loads(said["gitlab"])) == 2
    ElementTree.fromstring(said["junit"])
    assert all(line.startswith(("::", "ddp-audit: 1 info")) for line in said["github"].splitlines())
    heads = [line for line in said["text"].splitlines() if not line.startswith("    ")]
    assert len(heads) == 4 and all("DDP" in line for line in heads[:-2]) and heads[-2].startswith("Coverage: ")
    assert main([name, "--write-baseline", "known.json"]) == 0
    assert main([name, "--baseline", "known.json"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "is not a Jupyter notebook of format 4"),
        ('{"nbformat": 3, "worksheets": [{"cells": []}]}', "is not a Jupyter notebook of format 4"),
        ('{"cells": [null], "metadata": {}}', "is not a Jupyter notebook of format 4"),
        ('{"cells": [{"cell_type": "code", "source": 3}], "metadata": {}}', "is not a Jupyter notebook of format 4"),
        ('{"cells": [{"cell_type": "code"', "is not a Jupyter notebook of format 4"),
        (
            '{"cells": [{"cell_type": "code", "source": "x = \'\\ud800\'"}], "metadata": {}}',
            "contains half of a character (a lone surrogate)",
        ),
        ('{"cells": [{"cell_type": "code", "source": "x = \\u0000"}], "metadata": {}}', "contains null bytes"),
    ],
    ids=["deep", "version 3", "null", "number", "cut", "surrogate", "null byte"],
)
def test_broken_notebooks(text: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "book.ipynb").write_text(text)
    (folder / "train.py").write_text(HEAD + HAZARD)
    assert report(capsys, "book.ipynb", "train.py") == (2, [("train.py", 6)], [f"book.ipynb: {message}"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("[tool.ddp-audit]\nignore = []\n", "the settings stand here without [tool.ddp-audit] above them"),
        ('roots = ["a\\u0000"]\n', "'roots' must be a list of folders"),
        ('levels = {DDP201 = ["error"]}\n', "'levels' must be a table"),
        ('baseline = "."\n', "Is a directory"),
    ],
)
def test_settings_that_cannot_be_followed(settings: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ddp-audit.toml").write_text(settings)
    (folder / "train.py").write_text(HEAD)
    assert main(["train.py"]) == 2
    said = capsys.readouterr()
    assert words in said.err and said.err.count("\n") == 1 and said.out == ""


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "[" * 100_000, '{"version": 1, "findings": [{"code": 1}]}'])
def test_a_damaged_baseline(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "known.json").write_text(text)
    (folder / "train.py").write_text(HEAD)
    assert main(["train.py", "--baseline", "known.json"]) == 2
    said = capsys.readouterr()
    assert "known.json: is not a baseline" in said.err and said.err.count("\n") == 1 and said.out == ""
