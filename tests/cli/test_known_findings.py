"""`--baseline` and `--write-baseline`: what is known, new and gone. The rules are those of conftest.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddp_audit.cli import main


def last_note(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-2]


@pytest.fixture
def known(project: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A project of two files with three findings, all of them in known.json."""
    Path("one.py").write_text("import torch.distributed\na = 'GRAVE'\nb = 'GRAVE'\n")
    Path("two.py").write_text("import torch.distributed\nc  =  'SLIGHT'\n")
    assert main([".", "--write-baseline", "known.json"]) == 0
    assert capsys.readouterr().err == "ddp-audit: 3 findings written to known.json\n"
    return project


def check(*words: str) -> int:
    return main(["check", ".", "--baseline", "known.json", *words])


def test_the_file_is_for_review(known: Path) -> None:
    document = json.loads(Path("known.json").read_text())
    assert document["version"] == 1
    first = document["findings"][0]
    assert first.pop("fingerprint")
    assert first == {"code": "DDP801", "path": "one.py", "line": 2, "text": "a = 'GRAVE'"}
    assert [(f["path"], f["line"]) for f in document["findings"]] == [("one.py", 2), ("one.py", 3), ("two.py", 2)]
    before = Path("known.json").read_bytes()
    main([".", "--write-baseline", "known.json"])
    assert Path("known.json").read_bytes() == before


def test_known_findings_do_not_fail(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--strict") == 0
    assert last_note(capsys) == "0 new, 3 known, 0 gone (baseline known.json)"


def test_new_known_and_gone_are_counted(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.py").write_text("import torch.distributed\n\n\nb = 'GRAVE'\nd = 'GRAVE'\n")
    assert check("--format", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert [(f["path"], f["line"]) for f in document["findings"]] == [("one.py", 5)]
    assert document["notes"] == ["1 new, 2 known, 1 gone (baseline known.json)"]


def test_moved_lines_and_other_indentation_stay_known(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.py").write_text("import torch.distributed\n\nif True:\n    a = 'GRAVE'\n    b  = 'GRAVE'\n")
    assert check() == 0
    assert last_note(capsys) == "0 new, 3 known, 0 gone (baseline known.json)"


def test_a_renamed_file_stays_known(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.py").rename("three.py")
    assert check() == 0
    assert last_note(capsys) == "0 new, 3 known, 0 gone (baseline known.json)"


def test_it_holds_in_any_folder(known: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("sub").mkdir()
    Path("sub/one.py").write_text("import torch.distributed\nd = 'GRAVE'\n")
    assert check("--write-baseline", "sub/known.json") == 0
    assert {e["path"] for e in json.loads(Path("sub/known.json").read_text())["findings"]} == {"../one.py", "../two.py", "one.py"}
    monkeypatch.chdir("sub")
    capsys.readouterr()
    assert main(["one.py", "--baseline", "known.json"]) == 0
    assert last_note(capsys) == "0 new, 1 known, 0 gone (baseline known.json)"
    assert main(["../two.py", "--baseline", "../known.json"]) == 0
    assert last_note(capsys) == "0 new, 1 known, 0 gone (baseline ../known.json)"


def test_a_copy_is_not_a_rename(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("three.py").write_text(Path("one.py").read_text())
    assert check() == 1
    assert last_note(capsys) == "2 new, 3 known, 0 gone (baseline known.json)"


def test_a_second_finding_of_equal_text_is_new(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.py").write_text("import torch.distributed\nc = 'SLIGHT'\nc = 'SLIGHT'\n")
    assert check("--strict") == 1
    assert last_note(capsys) == "1 new, 3 known, 0 gone (baseline known.json)"


def test_files_and_rules_left_out_are_not_gone(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "two.py", "--baseline", "known.json"]) == 0
    assert last_note(capsys) == "0 new, 1 known, 0 gone (baseline known.json)"
    assert check("--select", "DDP802") == 0
    assert last_note(capsys) == "0 new, 1 known, 0 gone (baseline known.json)"


def test_a_file_that_no_longer_matters_or_is_deleted_is_gone(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.py").unlink()
    Path("two.py").write_text("c = 'SLIGHT'\n")
    assert check() == 0
    assert last_note(capsys) == "0 new, 0 known, 3 gone (baseline known.json)"


def test_rewriting_keeps_what_was_not_looked_at_and_drops_what_is_gone(known: Path) -> None:
    Path("one.py").write_text("import torch.distributed\na = 'GRAVE'\nd = 'GRAVE'\n")
    assert main(["one.py", "--baseline", "known.json", "--write-baseline", "known.json"]) == 0
    entries = json.loads(Path("known.json").read_text())["findings"]
    assert [(e["path"], e["text"]) for e in entries] == [
        ("one.py", "a = 'GRAVE'"),
        ("one.py", "d = 'GRAVE'"),
        ("two.py", "c = 'SLIGHT'"),
    ]


def test_what_was_not_looked_at_is_kept_in_another_folder(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("two.py").write_text("import torch.distributed\nc = 'SLIGHT'\nc = 'SLIGHT'\n")
    main([".", "--write-baseline", "known.json"])
    Path("sub").mkdir()
    assert main(["one.py", "--baseline", "known.json", "--write-baseline", "sub/known.json"]) == 0
    paths = [entry["path"] for entry in json.loads(Path("sub/known.json").read_text())["findings"]]
    assert paths == ["../one.py", "../one.py", "../two.py", "../two.py"]
    capsys.readouterr()
    assert main([".", "--strict", "--baseline", "sub/known.json"]) == 0
    assert last_note(capsys) == "0 new, 4 known, 0 gone (baseline sub/known.json)"


def test_errors_still_fail(known: Path) -> None:
    Path("broken.py").write_text("a = (\n")
    assert check() == 2
    assert main([".", "--write-baseline", "other.json"]) == 2


def test_the_known_ones_can_be_seen_all_the_same(known: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("baseline = 'known.json'\n")
    assert main(["."]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "No new hazards found in 2 files."
    assert main([".", "--no-baseline"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "2 errors and 1 warning in 2 files."


def test_the_settings_may_name_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("baseline = 'known.json'\n")
    Path("one.py").write_text("a = 'GRAVE'\n")
    assert main(["one.py"]) == 2
    assert main(["one.py", "--write-baseline", "known.json"]) == 0
    assert main(["one.py"]) == 0
    Path("ddp-audit.toml").write_text("baseline = ['known.json']\n")
    assert main(["one.py"]) == 2
    assert "'baseline' must be the name of a file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2, "findings": []}', '{"version": 1, "findings": [{"code": 1}]}'])
def test_what_is_no_baseline_is_one_line(project: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    Path("one.py").write_text("a = 1\n")
    Path("known.json").write_text(text)
    assert check() == 2
    error = capsys.readouterr().err
    assert "known.json: is not a baseline" in error
    assert error.count("\n") == 1


def test_a_baseline_that_cannot_be_written_is_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("one.py").write_text("a = 1\n")
    assert main(["one.py", "--write-baseline", "no/such/folder.json"]) == 2
    assert capsys.readouterr().err == "ddp-audit: --write-baseline: no/such/folder.json: No such file or directory\n"
