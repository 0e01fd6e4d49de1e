"""What is installed, alone: the packages of the wheel in a folder of their own, no torch, no repository around them.

An editable install finds every file of the repository, so that what a wheel lacks would be noticed by its first user.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_audit.rule import load_rules

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages that the wheel is told to hold, with the files that the build takes: those that git does not ignore."""
    site = tmp_path_factory.mktemp("site")
    for package in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", package]
        for name in subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines():
            target = site / Path(name).relative_to(Path(package).parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    (site / "torch.py").write_text("raise ImportError('no torch here')\n")
    return site


def tool(installed: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as its entry point starts it."""
    module, _, function = PROJECT["project"]["scripts"]["ddp-audit"].partition(":")
    start = f"import sys; sys.path[:0] = [{str(installed)!r}]; from {module} import {function}; sys.exit({function}(sys.argv[1:]))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [sys.executable, "-c", start, *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_baseline_then_one_bug_then_its_fix(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "example" / "train.py", tmp_path / "train.py")
    assert tool(installed, tmp_path, ".").returncode == 1
    assert tool(installed, tmp_path, ".", "--write-baseline", "known.json").returncode == 0
    (tmp_path / "pyproject.toml").write_text('[tool.ddp-audit]\nbaseline = "known.json"\nstrict = true\n')
    assert tool(installed, tmp_path, ".").returncode == 0
    page = tool(installed, tmp_path, "explain", "DDP302")
    assert page.returncode == 0 and page.stdout.startswith("DDP302 missing-set-epoch")
    bug = next(rule.bad for rule in load_rules() if rule.code == "DDP302")
    (tmp_path / "extra.py").write_text(bug)
    run = tool(installed, tmp_path, ".", "--format", "json", "--select", "DDP3,DDP4")
    assert run.returncode == 1, run.stderr
    assert {(f["code"], f["path"]) for f in json.loads(run.stdout)["findings"]} == {("DDP302", "extra.py")}
    assert tool(installed, tmp_path, ".", "--select", "DDP3,DDP4", "--fix").returncode == 0
    assert "set_epoch(" in (tmp_path / "extra.py").read_text()


def test_files_that_are_no_modules_are_there(installed: Path, tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from generated_traces import generate

    generate(tmp_path / "trace", 2, 40, "size", 1)
    run = tool(installed, tmp_path, "diff", "trace", "--format", "html", "--output", "diff.html")
    assert (run.returncode, run.stderr) == (1, "")
    assert "<html" in (tmp_path / "diff.html").read_text(encoding="utf-8").lower()
    for name in ("ddp_audit", "ddp_audit_rules", "ddp_audit_trainer"):
        assert (installed / name / "py.typed").is_file()
    assert list((installed / "ddp_audit" / "trace" / "worker" / "native").glob("*.cpp"))
    assert tool(installed, tmp_path, "demo", "--list").returncode == 0
