"""Preview rules run only where somebody asks for them, and each list of rules says which they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ddp_audit import api
from ddp_audit.cli import main
from ddp_audit.rule_loading import every_rule

SCRIPT = """\
import torch.distributed as dist

dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
dist.destroy_process_group()
"""
NOTE = "ACME001 is a preview rule and does not run without --preview"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script, and a rule of the project's own that is in preview."""
    monkeypatch.chdir(tmp_path)
    assert main(["new-rule", "ACME001", "late-group"]) == 0
    rule = Path("lint/late_group.py")
    rule.write_text(rule.read_text().replace('    level = "warning"\n', '    level = "warning"\n    preview = True\n'))
    Path("ddp-audit.toml").write_text("rules = ['lint']\n")
    Path("train.py").write_text(SCRIPT)
    return tmp_path


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    main(["check", "--allow-project-rules", "--format", "json", "train.py", *words])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    document["codes"] = [finding["code"] for finding in document["findings"]]
    return document


@pytest.mark.parametrize(
    ("settings", "words", "runs"),
    [
        ("", [], False),
        ("", ["--preview"], True),
        ("", ["--preview", "--ignore", "ACME001"], False),
        ("", ["--select", "ALL"], False),
        ("", ["--select", "ACME", "--preview"], True),
        ("preview = true\n", [], True),
        ("preview = true\n", ["--no-preview"], False),
        ("preview = false\n", ["--preview"], True),
    ],
)
def test_a_preview_rule_runs_where_it_is_asked_for(
    settings: str, words: list[str], runs: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ddp-audit.toml").write_text(f"rules = ['lint']\n{settings}")
    found = report(capsys, *words)
    assert ("ACME001" in found["codes"]) == runs
    assert not [note for note in found.get("notes", []) if "preview" in note]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("", ["--select", "ACME001"]),
        ("", ["--select", "DDP201,late-group"]),
        ("select = ['acme001']\n", []),
        ("levels = { late-group = 'error' }\n", []),
    ],
)
def test_a_note_says_that_a_named_rule_does_not_run(settings: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text(f"rules = ['lint']\n{settings}")
    found = report(capsys, *words)
    assert "ACME001" not in found["codes"]
    assert [note for note in found.get("notes", []) if note.startswith(NOTE)]


def test_the_answers_of_the_cache_know_whether_preview_rules_ran(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [report(capsys, *words)["codes"] for words in ([], ["--preview"], ["--preview"], [], ["--preview"])]
    assert ["ACME001" in codes for codes in runs] == [False, True, True, False, True]


def test_lists_and_pages_mark_it(capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["rules", "--allow-project-rules"])
    marked = [line for line in capsys.readouterr().out.splitlines() if "(preview)" in line]
    assert [line.split()[0] for line in marked] == ["ACME001"]
    main(["rules", "--allow-project-rules", "--format", "json"])
    listed = json.loads(capsys.readouterr().out)["rules"]
    assert [rule["code"] for rule in listed if rule["preview"]] == ["ACME001"]
    main(["explain", "--allow-project-rules", "ACME001"])
    assert "This rule is in preview" in capsys.readouterr().out
    main(["check", "--allow-project-rules", "--preview", "--format", "sarif", "train.py"])
    described = json.loads(capsys.readouterr().out)["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in described if "preview" in rule["properties"]["tags"]] == ["ACME001"]


def test_its_examples_are_checked_in_any_case() -> None:
    (rule,) = (rule for rule in every_rule(["lint"]) if rule.code == "ACME001")
    assert rule.preview and api.check_examples(rule, valid=[rule.good], invalid=[rule.bad]) == []
