"""The GitHub action, step by step as a runner takes it, and the pre-commit hook's entry."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
BAD = (ROOT / "tests" / "cases" / "ddp101" / "raw_reference" / "bad.py").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one finding, and in `temp` the tool as the action's first step installs it."""
    (tmp_path / "train.py").write_text(BAD, encoding="utf-8")
    tool = tmp_path / "temp" / "ddp-audit" / "bin" / "ddp-audit"
    tool.parent.mkdir(parents=True)
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ddp_audit "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def audit_step(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The action's audit with some inputs; the others have their defaults."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    step = next(step for step in action["runs"]["steps"] if step.get("id") == "audit")
    given = {name: about["default"] for name, about in action["inputs"].items()} | inputs
    environment = os.environ | {name: given[text.split(".")[1].split()[0]] for name, text in step["env"].items()}
    environment |= {"RUNNER_TEMP": str(folder / "temp"), "GITHUB_OUTPUT": str(folder / "outputs")}
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return subprocess.run(bash, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_findings_become_annotations_and_fail_the_step(folder: Path) -> None:
    run = audit_step(folder, paths="train.py")
    assert run.returncode == 1, run.stderr
    assert "::error file=train.py,line=14," in run.stdout
    assert (folder / "outputs").read_text() == "exit-code=1\n"


def test_options_and_a_report_file(folder: Path) -> None:
    run = audit_step(folder, paths="train.py", args="--exit-zero --select DDP101", format="sarif", output="report.sarif")
    assert run.returncode == 0, run.stderr
    assert '"version": "2.1.0"' in (folder / "report.sarif").read_text()


def test_a_baseline_keeps_what_is_known_quiet(folder: Path) -> None:
    assert audit_step(folder, paths="train.py", args="--write-baseline known.json").returncode == 0
    assert audit_step(folder, paths="train.py", args="--baseline known.json").returncode == 0
    (folder / "other.py").write_text(BAD, encoding="utf-8")
    run = audit_step(folder, paths="train.py other.py", args="--baseline known.json")
    assert run.returncode == 1
    assert "file=other.py" in run.stdout and "::error file=train.py" not in run.stdout


def test_what_cannot_be_done_fails_the_step(folder: Path) -> None:
    assert audit_step(folder, paths="nowhere.py").returncode == 2
    assert (folder / "outputs").read_text() == "exit-code=2\n"


def test_the_hook_passes_over_what_is_excluded(folder: Path) -> None:
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))[0]
    words = [sys.executable, "-m", "ddp_audit", *hook["entry"].split()[1:]]
    assert subprocess.run([*words, "train.py"], cwd=folder, capture_output=True, check=False).returncode == 1
    (folder / "ddp-audit.toml").write_text("exclude = ['train.py']\n")
    assert subprocess.run([*words, "train.py"], cwd=folder, capture_output=True, check=False).returncode == 0
