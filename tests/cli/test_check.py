"""`ddp-audit check`: exit codes, selection, suppression, formats. The rules are those of conftest.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_audit.cli import main


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["check", "--format", "json", *words])
    return code, json.loads(capsys.readouterr().out)


def codes(document: dict[str, Any]) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


# Exit codes


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("a = 1\n", [], 0),
        ("a = 'GRAVE'\n", [], 1),
        ("a = 'SLIGHT'\n", [], 0),
        ("a = 'SLIGHT'\n", ["--strict"], 1),
        ("a = 'ASIDE'\n", ["--strict"], 0),
        ("a = 'VAGUE'\n", [], 0),
        ("a = 'VAGUE'\n", ["--min-confidence", "possible"], 1),
        ("a = 'GRAVE'\n", ["--exit-zero"], 0),
        ("a = 'GRAVE'\n", ["--ignore", "DDP801"], 0),
        ("a = (\n", [], 2),
        ("a = (\n", ["--exit-zero"], 2),
    ],
)
def test_exit_code(project: Path, capsys: pytest.CaptureFixture[str], text: str, options: list[str], code: int) -> None:
    write(project, script=text)
    assert check(capsys, "script.py", *options)[0] == code


def test_missing_path_is_an_error_and_the_others_are_audited(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="a = 'GRAVE'\n")
    code, document = check(capsys, "nowhere.py", "script.py")
    assert code == 2
    assert codes(document) == ["DDP801"]
    assert document["errors"] == [{"path": "nowhere.py", "cell": None, "line": None, "message": "no such file or directory"}]


def test_directory_without_python_files(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "empty").mkdir()
    (project / "empty" / "notes.txt").write_text("nothing")
    code, document = check(capsys, "empty")
    assert code == 2
    assert document["errors"] == [{"path": "empty", "cell": None, "line": None, "message": "no Python files in this directory"}]


def test_syntax_error_in_a_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, broken="import os\ndef f(:\n", train="import torch.distributed\na = 'GRAVE'\n")
    code, document = check(capsys, ".")
    assert code == 2
    assert codes(document) == ["DDP801"]
    assert [(e["path"], e["line"]) for e in document["errors"]] == [("broken.py", 2)]


def test_syntax_error_in_an_import(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, broken="x = = 1\n", train="import broken\na = 'GRAVE'\n")
    code, document = check(capsys, "train.py")
    assert code == 2
    assert codes(document) == ["DDP801"]
    assert document["errors"][0]["path"] == "broken.py"


def test_not_utf8(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "latin.py").write_bytes(b"a = 1\nname = '\xe9t\xe9 GRAVE'\n")
    code, document = check(capsys, "latin.py")
    assert code == 2
    assert document["errors"] == [
        {"path": "latin.py", "cell": None, "line": 2, "message": "is not UTF-8 and has no coding comment"}
    ]
    (project / "latin.py").write_bytes(b"# coding: latin-1\nname = '\xe9t\xe9 GRAVE'\n")
    assert check(capsys, "latin.py")[0] == 1


def test_text_report_names_each_error_on_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.py", "also-not"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["error: also-not: no such file or directory", "error: nowhere.py: no such file or directory"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["script.py", "--no-such-option"], "--no-such-option"),
        (["script.py", "--baseline", "x"], "--baseline"),
        (["script.py", "--strict", "--select"], "--select"),
        (["script.py", "--select", "DDP777"], "no rule is called 'DDP777'"),
        (["script.py", "--ignore", "grave-wrod"], "did you mean grave-word?"),
        (["script.py", "--format", "xml"], "xml"),
        (["script.py", "--world-size", "0"], "number of processes"),
        (["script.py", "--world-size", "4", "--launch", "torchrun --nproc-per-node 4 script.py"], "--world-size"),
        (["script.py", "--launch", "make tea"], "make"),
        (["script.py", "--set", "no-value"], "NAME=VALUE"),
        (["script.py", "--config-file", "nowhere.py"], "nowhere.py: no such file"),
        (["script.py", "--output", "no/such/folder/report.txt"], "No such file"),
        (["script.py", "--trace", "no-such-folder"], "no-such-folder"),
        (["check"], "PATH"),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    write(project, script="a = 1\n")
    assert main(words) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_a_rule_that_fails_is_named_and_the_others_go_on(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="a = 'GRAVE CRASH'\n")
    code, document = check(capsys, "script.py")
    assert code == 2
    assert codes(document) == ["DDP801"]
    (error,) = document["errors"]
    assert error["path"] == "script.py"
    assert "DDP899 failing-rule" in error["message"]
    assert "ZeroDivisionError" in error["message"]


# Selection


EVERYTHING = "a = 'GRAVE'\nb = 'SLIGHT'\nc = 'ASIDE'\nd = 'VAGUE'\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["DDP801", "DDP802", "DDP811"]),
        (["--min-confidence", "possible"], ["DDP801", "DDP802", "DDP811", "DDP812"]),
        (["--min-confidence", "certain"], []),
        (["--select", "DDP801"], ["DDP801"]),
        (["--select", "DDP80"], ["DDP801", "DDP802"]),
        (["--select", "slight-word,DDP811"], ["DDP802", "DDP811"]),
        (["--select", "DDP8", "--ignore", "DDP80"], ["DDP811"]),
        (["--ignore", "grave-word", "--ignore", "aside-word"], ["DDP802"]),
        (["--select", "ALL"], ["DDP801", "DDP802", "DDP811"]),
    ],
)
def test_select_and_ignore(project: Path, capsys: pytest.CaptureFixture[str], options: list[str], expected: list[str]) -> None:
    write(project, script=EVERYTHING)
    assert codes(check(capsys, "script.py", *options)[1]) == expected


def test_settings_of_the_project_and_options_before_them(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script=EVERYTHING)
    (project / "pyproject.toml").write_text("[tool.ddp-audit]\nselect = ['DDP80']\nignore = ['DDP801']\nstrict = true\n")
    code, document = check(capsys, "script.py")
    assert (code, codes(document)) == (1, ["DDP802"])
    assert codes(check(capsys, "script.py", "--select", "DDP811")[1]) == ["DDP811"]
    (project / "pyproject.toml").write_text("[tool.ddp-audit]\nselekt = ['DDP80']\n")
    assert main(["script.py"]) == 2
    assert "did you mean 'select'?" in capsys.readouterr().err


def test_exclude(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "old").mkdir()
    write(project / "old", train="import torch.distributed\na = 'GRAVE'\n")
    write(project, train="import torch.distributed\n")
    assert codes(check(capsys, ".")[1]) == ["DDP801"]
    assert codes(check(capsys, ".", "--exclude", "old")[1]) == []


# Suppression


def test_suppressed_findings_are_counted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="a = 'GRAVE'  # ddp-audit: ignore[DDP801] known\nb = 'SLIGHT'  # ddp-audit: ignore[slight-word]\n")
    code, document = check(capsys, "script.py")
    assert (code, codes(document), document["suppressed"]) == (0, [], 2)


def test_complaints_about_suppressions(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(
        project,
        script="a = 'GRAVE'  # ddp-audit: ignore\nb = 1  # ddp-audit: ignore[DDP802]\nc = 2  # ddp-audit: ignore[DDP8]\n",
    )
    _, document = check(capsys, "script.py")
    assert codes(document) == ["DDP801", "DDP901", "DDP903", "DDP902"]
    assert codes(check(capsys, "script.py", "--select", "DDP801")[1]) == ["DDP801"]
    assert codes(check(capsys, "script.py", "--select", "DDP801,DDP9")[1]) == ["DDP801", "DDP901", "DDP902"]


def test_a_comment_in_an_imported_file_is_not_called_unused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="import helper\n", helper="a = 1  # ddp-audit: ignore[DDP801]\n")
    assert codes(check(capsys, "script.py")[1]) == []
    assert codes(check(capsys, "script.py", "helper.py")[1]) == ["DDP903"]


# Documents


def test_json_has_the_documented_form(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="pass\nx = 'GRAVE'\nx = 'GRAVE'\n")
    _, document = check(capsys, "script.py")
    keys = ["version", "tool", "files", "findings", "errors", "suppressed", "coverage", "predicted"]
    assert list(document) == keys
    assert (document["version"], document["predicted"]) == (2, None)
    assert document["coverage"] == {"scripts": [], "reached": [], "not_followed": [], "complete": True}
    assert document["tool"]["name"] == "ddp-audit"
    assert (document["files"], document["errors"], document["suppressed"]) == (1, [], 0)
    first, second = document["findings"]
    assert first.pop("fingerprint") != second.pop("fingerprint")
    assert first == {
        "code": "DDP801",
        "name": "grave-word",
        "severity": "error",
        "confidence": "likely",
        "path": "script.py",
        "cell": None,
        "line": 2,
        "column": 6,
        "end_line": 2,
        "end_column": 11,
        "message": "The word is here.",
        "explanation": "It stays here, on all ranks.",
        "related": [{"path": "script.py", "cell": None, "line": 1, "role": "guard", "text": "only rank 0 enters"}],
        "places": None,
        "option": None,
        "fix": {"safety": "display-only", "description": "take the word away"},
    }


def test_a_finding_that_two_entries_lead_to_is_reported_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, one="import helper\n", two="import helper\n", helper="a = 'GRAVE'\n")
    _, document = check(capsys, "one.py", "two.py")
    assert [(f["path"], f["line"]) for f in document["findings"]] == [("helper.py", 1)]
    assert document["files"] == 3


def test_findings_are_sorted_and_fingerprints_survive_line_moves(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, b="x = 'SLIGHT GRAVE'\n", a="y = 'GRAVE'\n")
    _, before = check(capsys, "b.py", "a.py")
    assert [(f["path"], f["column"]) for f in before["findings"]] == [("a.py", 6), ("b.py", 6), ("b.py", 13)]
    write(project, a="\n\n\ny = 'GRAVE'\n")
    _, after = check(capsys, "b.py", "a.py")
    assert [f["fingerprint"] for f in after["findings"]] == [f["fingerprint"] for f in before["findings"]]


def test_any_number_of_jobs_gives_the_same_output(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, helper="x = 'SLIGHT'\ny = 1  # ddp-audit: ignore[DDP801]\n", broken="x = = 1\n")
    for name in ("one", "two", "three", "four", "five"):
        write(project, **{name: f"import helper, broken\nimport torch.distributed\na = 'GRAVE {name} CRASH'\n"})
    one = check(capsys, ".", "--jobs", "1")
    assert check(capsys, ".", "--jobs", "3") == one
    code, document = one
    assert code == 2
    assert codes(document).count("DDP801") == 5
    assert len(document["errors"]) == 6


def test_output_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="a = 'GRAVE'\n")
    assert main(["script.py", "--format", "json", "--output", "report.json"]) == 1
    assert capsys.readouterr().out == ""
    assert json.loads((project / "report.json").read_text())["findings"][0]["code"] == "DDP801"


def test_text_by_its_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="a = 'GRAVE'\n")
    assert main(["script.py", "--statistics", "--format", "text"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "script.py:1:6: DDP801 error grave-word [likely] The word is here.",
        "    guard: script.py:1: only rank 0 enters",
        "    It stays here, on all ranks.",
        "    Fix: take the word away",
        "Coverage: 1 file read, no training found",
        "    1  DDP801  grave-word",
        "1 error in 1 file.",
    ]


def test_full_when_piped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, script="a = 'GRAVE'\n")
    assert main(["script.py"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "script.py:1:6  error DDP801 grave-word [likely]",
        "  The word is here.",
        "     1 | a = 'GRAVE'",
        "       |      ^^^^^",
        "  Fix: take the word away",
        "",
        "More about a rule: ddp-audit explain DDP801",
        "Coverage: 1 file read, no training found",
        "1 error in 1 file.",
    ]


def test_rules_and_explain(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["rules"]
    assert [rule["code"] for rule in listed][:2] == ["DDP801", "DDP802"]
    assert {"DDP901", "DDP902", "DDP903"} <= {rule["code"] for rule in listed}
    assert main(["rules"]) == 0
    assert "grave-word" in capsys.readouterr().out
    for name in ("DDP801", "grave-word", "ddp801"):
        assert main(["explain", name]) == 0
        page = capsys.readouterr().out
        assert page.startswith("DDP801 grave-word (error)\n")
        assert "Take the word away." in page
    assert main(["explain", "DDP901", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"][0]["name"] == "suppression-without-code"
    assert main(["explain", "DDP777"]) == 2
