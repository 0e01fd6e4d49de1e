"""Reports that are printed again: the same text and exit code, as long as nothing that they rest on changed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import ddp_audit_rules
from ddp_audit.cache import reports
from ddp_audit.cache.files import cache_folder
from ddp_audit.cli import main
from ddp_audit.source import freshness

SCRIPT = "import torch.distributed\nimport helper\nimport missing\na = 'GRAVE'\n"


@pytest.fixture
def printed(project: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each command whether it was printed again. Guards of files that were written just now are trusted."""
    found: list[bool] = []
    real = reports.again

    def told(words: Sequence[str]) -> int | None:
        code = real(words)
        found.append(code is not None)
        return code

    monkeypatch.setattr(freshness, "_TICK", -(10**18))
    monkeypatch.setattr(reports, "again", told)
    return found


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    return code, *capsys.readouterr()


def write(**texts: str) -> None:
    for name, text in texts.items():
        path = Path(f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize("form", ["full", "concise", "text", "json", "sarif"])
def test_the_same_command_is_answered_with_the_same(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], form: str
) -> None:
    write(train=SCRIPT, helper="b = 'SLIGHT'\n")
    first = report(capsys, "check", ".", "--format", form)
    assert report(capsys, "check", ".", "--format", form) == first
    assert report(capsys, "check", ".", "--format", form, "--no-cache") == first
    assert printed == [False, True, False]
    assert first[0] == 1
    assert report(capsys, "check", ".", "--format", form, "--exit-zero")[0] == 0
    assert printed[-1] is False
    assert [report(capsys, "check", ".", "--format", form, "--color", "never") for _ in range(2)] == [first, first]
    assert printed[-2:] == [False, True]


@pytest.mark.parametrize(
    "words",
    [["--format", "markdown"], ["--format", "junit"], ["--format", "json", "--statistics"], ["--output", "report.txt"], ["--diff"]],
)
def test_what_does_not_all_go_to_standard_output_is_made_anew(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    write(train=SCRIPT, helper="")
    first = report(capsys, "train.py", *words)
    assert report(capsys, "train.py", *words) == first
    assert printed == [False, False]


def test_a_terminal_does_not_get_what_a_pipe_got(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(train=SCRIPT)
    _, piped, _ = report(capsys, "train.py")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, shown, _ = report(capsys, "train.py")
    assert printed == [False, False]
    assert shown != piped and "GRAVE" in shown


def test_a_baseline_is_read_each_time(project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    write(train=SCRIPT, helper="")
    report(capsys, "train.py", "--write-baseline", "known.json")
    assert report(capsys, "train.py", "--baseline", "known.json")[0] == 0
    document = json.loads(Path("known.json").read_text())
    Path("known.json").write_text(json.dumps({**document, "findings": []}))
    assert report(capsys, "train.py", "--baseline", "known.json")[0] == 1


CHANGES: dict[str, Callable[[], object]] = {
    "the script": lambda: write(train=SCRIPT + "b = 'GRAVE'\n"),
    "a file that it imports": lambda: write(helper="b = 'GRAVE'\n"),
    "an import that is gone": lambda: Path("helper.py").unlink(),
    "an import that was missing": lambda: write(missing="b = 'GRAVE'\n"),
    "a package before a module": lambda: write(**{"helper/__init__": "b = 'GRAVE'\n"}),
    "a new script in a new folder": lambda: write(**{"more/deep/new": SCRIPT}),
    "a file that cannot be parsed from now on": lambda: write(plain="a = (\n"),
    "a folder that is an environment from now on": lambda: Path("sub/pyvenv.cfg").write_text(""),
    "settings above": lambda: Path("../ddp-audit.toml").write_text("ignore = ['DDP801']\n"),
    "settings that change": lambda: Path("pyproject.toml").write_text("[tool.ddp-audit]\nignore = ['DDP801']\n"),
    "what a link leads to": lambda: (Path("..") / "linked.py").write_text("b = 'GRAVE'\n"),
    "where a link leads": lambda: (Path("linked.py").unlink(), Path("linked.py").symlink_to("train.py")),
    "a config file": lambda: write(config="size = 'other'\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_the_outcome_is_seen(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("inner/sub").mkdir(parents=True)
    monkeypatch.chdir("inner")
    Path("../linked.py").write_text("b = 1\n")
    Path("linked.py").symlink_to("../linked.py")
    Path("pyproject.toml").write_text("")
    write(train=SCRIPT + "import linked\n", helper="b = 'SLIGHT'\n", plain="c = 1\n", config="size = 'one'\n")
    write(**{"sub/train": "import torch.distributed\na = 'GRAVE'\n"})
    words = (".", "--format", "json", "--config-file", "config.py")
    first = report(capsys, *words)
    assert report(capsys, *words) == first
    assert printed == [False, True]
    CHANGES[change]()
    after = report(capsys, *words)
    assert printed == [False, True, False]
    assert after == report(capsys, *words, "--no-cache")


def test_a_change_of_a_rule_counts(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(train=SCRIPT, helper="", **{"rules/one": "level = 'error'\n", "own/two": ""})
    monkeypatch.setattr(ddp_audit_rules, "__path__", [str(project / "rules")])
    Path("ddp-audit.toml").write_text("rules = ['own']\n")
    report(capsys, "train.py", "--allow-project-rules")
    for name in ("rules/one", "rules/more", "own/two", "own/more"):
        assert report(capsys, "train.py", "--allow-project-rules") == report(capsys, "train.py", "--allow-project-rules")
        assert printed[-1] is True
        write(**{name: "level = 'warning'\n"})
        report(capsys, "train.py", "--allow-project-rules")
        assert printed[-1] is False


def test_what_was_written_a_moment_ago_is_not_kept(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "_TICK", 10**18)
    write(train=SCRIPT, helper="")
    first = report(capsys, "train.py")
    assert report(capsys, "train.py") == first
    assert printed == [False, False]
    assert list(cache_folder().glob("report-*")) == []


def test_errors_are_told_anew(project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    write(train=SCRIPT, helper="a = (\n")
    first = report(capsys, "train.py")
    assert report(capsys, "train.py") == first
    assert first[0] == 2
    assert printed == [False, False]


def test_damage_is_as_good_as_nothing(project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    write(train=SCRIPT, helper="")
    first = report(capsys, "train.py")
    (path,) = cache_folder().glob("report-*")
    data = path.read_bytes()
    for place in range(0, len(data), 97):
        path.write_bytes(data[:place])
        assert reports.again(["train.py"]) is None
        path.write_bytes(data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :])
        assert reports.again(["train.py"]) is None
    assert report(capsys, "train.py") == first
    assert report(capsys, "train.py") == first
    assert printed[-2:] == [False, True]


def test_another_folder_is_another_command(
    project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(train=SCRIPT, helper="", **{"sub/train": "a = 1\n"})
    assert report(capsys, "train.py")[0] == 1
    monkeypatch.chdir("sub")
    assert report(capsys, "train.py")[0] == 0
    assert printed == [False, False]


def test_reports_are_bounded(project: Path, printed: list[bool], capsys: pytest.CaptureFixture[str]) -> None:
    write(train=SCRIPT, helper="")
    for number in range(3):
        report(capsys, "train.py", "--world-size", str(number + 1))
        assert len(list(cache_folder().glob("report-*"))) == number + 1
    for path in cache_folder().glob("report-*"):
        os.utime(path, (number, number))
    from ddp_audit.cache import files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_REPORTS", 2)
        report(capsys, "train.py", "--world-size", "4")
    assert len(list(cache_folder().glob("report-*"))) == 2
