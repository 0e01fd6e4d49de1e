"""Standard input, files held against exclusions, and the reports for GitLab and JUnit. The rules are those of conftest.py."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import ddp_audit.audit as audit_module
from ddp_audit.cli import main
from ddp_audit.findings import Finding
from ddp_audit.rule import Context, Rule

# Standard input


def give(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_standard_input_under_its_name(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "helper.py").write_text("a = 'GRAVE'\n")
    (project / "sub" / "train.py").write_text("what is on the disk does not count (\n")
    give(monkeypatch, "import helper\nb = 'SLIGHT'\n")
    assert main(["-", "--stdin-filename", "sub/train.py", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(f["path"], f["code"]) for f in document["findings"]] == [("sub/helper.py", "DDP801"), ("sub/train.py", "DDP802")]
    assert document["files"] == 2


def test_standard_input_without_a_name(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    give(monkeypatch, "b = 'GRAVE'\n")
    assert main(["-"]) == 1
    assert capsys.readouterr().out.startswith("<stdin>:1:6  error DDP801")
    give(monkeypatch, "b = (\n")
    assert main(["-"]) == 2
    assert capsys.readouterr().out.startswith("error: <stdin>:1: ")


def test_settings_are_those_of_the_named_place(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "ddp-audit.toml").write_text("ignore = ['DDP801']\n")
    give(monkeypatch, "b = 'GRAVE'\n")
    assert main(["-", "--stdin-filename", "sub/new.py"]) == 0


@pytest.mark.parametrize("words", [["-", "one.py"], ["one.py", "--stdin-filename", "two.py"]])
def test_standard_input_is_audited_alone(project: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    (project / "one.py").write_text("a = 1\n")
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


# Exclusions


def test_a_given_file_is_excluded_only_by_force(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "old").mkdir()
    (project / "old" / "train.py").write_text("a = 'GRAVE'\n")
    (project / "new.py").write_text("a = 'SLIGHT'\n")
    words = ["old/train.py", "new.py", "--exclude", "old", "--format", "json"]
    assert main(words) == 1
    capsys.readouterr()
    assert main([*words, "--force-exclude"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert ([f["path"] for f in document["findings"]], document["files"], document["errors"]) == (["new.py"], 1, [])
    give(monkeypatch, "b = 'GRAVE'\n")
    assert main(["-", "--stdin-filename", "old/other.py", "--exclude", "old", "--force-exclude"]) == 0


# Processes


@pytest.mark.parametrize("jobs", ["1", "2", "7"])
def test_the_output_is_equal_for_any_number_of_processes(project: Path, capsys: pytest.CaptureFixture[str], jobs: str) -> None:
    (project / "shared.py").write_text("s = 'SLIGHT'  # ddp-audit: ignore[DDP802]\nt = 'SLIGHT'\n")
    (project / "broken.py").write_text("a = (\n")
    for number in range(6):
        (project / f"train{number}.py").write_text("import torch.distributed, shared, broken\na = 'GRAVE'\n")
    report = {}
    for count in ("1", jobs):
        assert main([".", "--format", "json", "--jobs", count]) == 2
        report[count] = capsys.readouterr().out
    assert report["1"] == report[jobs]
    document = json.loads(report["1"])
    assert (len(document["findings"]), document["suppressed"], len(document["errors"])) == (7, 1, 1)


def test_a_process_that_ends_costs_its_own_entry_alone(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = audit_module.installed_rules()[0]
    check = type(rule).check

    def end(self: Rule, context: Context) -> Iterable[Finding]:
        if "END" in "".join(context.program.documents.values()):
            os._exit(7)
        return check(self, context)

    monkeypatch.setattr(type(rule), "check", end)
    for number in range(6):
        (project / f"train{number}.py").write_text(f"import torch.distributed\na = 'GRAVE'  # {'END' if number == 2 else ''}\n")
    assert main([".", "--format", "json", "--jobs", "2"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [f["path"] for f in document["findings"]] == [f"train{number}.py" for number in (0, 1, 3, 4, 5)]
    (error,) = document["errors"]
    assert error["path"] == "train2.py"
    assert "ended from outside" in error["message"]


# Reports


EVERYTHING = "a = 'GRAVE'\nb = 'SLIGHT'\nc = 'ASIDE'\n"


def test_gitlab(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "script.py").write_text(EVERYTHING)
    (project / "broken.py").write_text("a = (\n")
    assert main(["script.py", "broken.py", "--format", "gitlab"]) == 2
    broken, *issues = json.loads(capsys.readouterr().out)
    assert broken["severity"] == "blocker"
    assert broken["location"] == {"path": "broken.py", "lines": {"begin": 1, "end": 1}}
    assert [issue["severity"] for issue in issues] == ["critical", "major", "info"]
    assert issues[0] == {
        "description": "DDP801 grave-word: The word is here.",
        "check_name": "DDP801",
        "fingerprint": issues[0]["fingerprint"],
        "severity": "critical",
        "location": {"path": "script.py", "lines": {"begin": 1, "end": 1}},
    }
    assert len({issue["fingerprint"] for issue in [broken, *issues]}) == 4


def junit(capsys: pytest.CaptureFixture[str], *words: str) -> ElementTree.Element:
    main([*words, "--format", "junit"])
    return ElementTree.fromstring(capsys.readouterr().out)


def test_junit(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "script.py").write_text(EVERYTHING)
    (project / "broken.py").write_text("a = (\n")
    root = junit(capsys, "script.py", "broken.py")
    assert root.tag == "testsuites"
    numbers = [[suite.get(key) for key in ("name", "tests", "failures", "errors")] for suite in root]
    assert numbers == [["broken.py", "1", "0", "1"], ["script.py", "3", "1", "0"]]
    cases = root[1].findall("testcase")
    assert [case.get("name") for case in cases] == ["DDP801 grave-word 1:6", "DDP802 slight-word 2:6", "DDP811 aside-word 3:6"]
    assert [[child.tag for child in case] for case in cases] == [["failure"], [], []]
    failure = cases[0][0]
    assert (failure.get("type"), failure.get("message")) == ("error", "The word is here.")
    assert "script.py:1:6: DDP801" in (failure.text or "")
    assert "script.py:2:6: DDP802" in (root[1].findtext("system-out") or "")
    strict = junit(capsys, "script.py", "--strict")
    assert strict[0].get("failures") == "2"


def test_junit_without_findings_is_one_passed_case(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "script.py").write_text("a = 1\n")
    root = junit(capsys, "script.py")
    assert [(suite.get("tests"), suite.get("failures")) for suite in root] == [("1", "0")]
    assert [list(case) for case in root.iter("testcase")] == [[]]


def test_control_characters_do_not_spoil_the_xml(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a&b<\x01.py").write_text("a = 'GRAVE'\n")
    root = junit(capsys, "a&b<\x01.py")
    assert [suite.get("name") for suite in root] == ["a&b<\\x01.py"]


@pytest.mark.parametrize("form", ["gitlab", "junit"])
def test_notes_go_to_stderr_where_the_report_has_no_room(project: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    (project / "script.py").write_text("a = 'GRAVE'\n")
    main(["script.py", "--write-baseline", "known.json"])
    capsys.readouterr()
    assert main(["script.py", "--baseline", "known.json", "--format", form]) == 0
    assert capsys.readouterr().err == "ddp-audit: 0 new, 1 known, 0 gone (baseline known.json)\n"


def test_a_dash_as_output_is_standard_output(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "a.py").write_text("a = 'GRAVE'\n")
    for words in (["--format", "json"], ["--format", "junit"], ["--diff"], []):
        code = main(["check", "a.py", *words])
        expected = re.sub(r'timestamp="[^"]*"', "", capsys.readouterr().out)
        assert main(["check", "a.py", *words, "--output", "-"]) == code
        assert re.sub(r'timestamp="[^"]*"', "", capsys.readouterr().out) == expected
    assert [path.name for path in project.iterdir()] == ["a.py"]
