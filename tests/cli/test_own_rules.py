"""A project's own rules, from a folder that its settings name and from an entry point, load as the installed ones do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ddp_audit.cli import main

RULE = """
from _shared import NAME

from ddp_audit.rule import Rule


class LateGroup(Rule):
    code = "ACME001"
    name = NAME
    level = "error"
    what = "A process group that is made after a wrapper."
    why = "Our launcher does not allow it."
    quiet = "Other scripts."
    confirmed = "Nothing."
    source = "Our handbook."
    bad = good = ""
    outcome = "not-run it is an example"
    remedy = "make it first"

    def check(self, context):
        for node in context.program.of("init"):
            yield self.finding(node.span, "The group is made here.")
"""
SCRIPT = "import torch.distributed as dist\ndist.init_process_group('gloo')\ndist.destroy_process_group()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(SCRIPT)
    Path("lint").mkdir()
    Path("lint/_shared.py").write_text("NAME = 'late-group'\n")
    Path("lint/late_group.py").write_text(RULE)
    Path("ddp-audit.toml").write_text("rules = ['lint']\n")
    for name in ("_shared", "ddp_audit_own_rules_lint_late_group"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def found(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    main(["check", "--format", "json", "train.py", *words])
    return [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]]


def test_a_folder_of_rules_is_part_of_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACME001" in found(capsys)
    assert found(capsys, "--select", "late-group") == ["ACME001"]
    assert "ACME001" not in found(capsys, "--ignore", "ACME001")
    Path("train.py").write_text(SCRIPT.replace("'gloo')", "'gloo')  # ddp-audit: ignore[ACME001] ours"))
    assert "ACME001" not in found(capsys)
    assert main(["explain", "ACME001"]) == 0
    assert "Our launcher does not allow it." in capsys.readouterr().out
    assert main(["rules"]) == 0
    assert "late-group" in capsys.readouterr().out


def test_a_changed_rule_counts_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ACME001" in found(capsys)
    Path("lint/late_group.py").write_text(RULE.replace("ACME001", "ACME002"))
    assert "ACME002" in found(capsys)


def test_an_entry_point_of_another_distribution(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ddp-audit.toml").unlink()
    site = project / "site"
    (site / "acme_lint").mkdir(parents=True)
    (site / "acme_lint" / "__init__.py").write_text("")
    (site / "acme_lint" / "late_group.py").write_text(RULE.replace("from _shared import NAME\n", "NAME = 'late-group'\n"))
    info = site / "acme_lint-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-lint\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ddp_audit.rules]\nacme = acme_lint\n")
    monkeypatch.syspath_prepend(str(site))
    assert "ACME001" in found(capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere\n", "cannot be loaded: ModuleNotFoundError"),
        (RULE.replace("ACME001", "DDP401"), "two rules have the code DDP401"),
        (RULE.replace("name = NAME", "name = 'data-not-sharded'"), "two rules have the name data-not-sharded"),
        (RULE.replace('why = "Our launcher does not allow it."', 'why = ""'), "LateGroup has no why"),
    ],
)
def test_rules_that_cannot_be_used_are_one_line(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("lint/late_group.py").write_text(text)
    assert main(["check", "--no-cache", "train.py"]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    Path("ddp-audit.toml").write_text("rules = ['nowhere']\n")
    assert main(["check", "train.py"]) == 2
    assert "nowhere: no such folder of rules" in capsys.readouterr().err
