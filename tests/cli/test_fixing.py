"""`--fix`, `--diff` and `--unsafe-fixes` on the command line, with the installed rules."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest

from ddp_audit.cli import main
from ddp_audit.rule import load_rules

RULES = {rule.code: rule for rule in load_rules()}
SAFE, UNSAFE = RULES["DDP302"].bad, RULES["DDP401"].bad
ONLY = ("--select", "DDP302,DDP401")


@pytest.fixture(autouse=True)
def two_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "safe.py").write_text(SAFE)
    (tmp_path / "unsafe.py").write_text(UNSAFE)
    return tmp_path


def test_diff_shows_the_safe_change_and_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([".", *ONLY, "--diff"]) == 1
    said = capsys.readouterr()
    assert said.out.startswith("--- safe.py\n+++ safe.py\n@@ ")
    assert [line for line in said.out.splitlines() if line[:1] in "+-"][2:] == ["+        sampler.set_epoch(epoch)"]
    assert said.err == "ddp-audit: would fix 1 finding in 1 file (1 more with --unsafe-fixes)\n"
    assert (Path("safe.py").read_text(), Path("unsafe.py").read_text()) == (SAFE, UNSAFE)


def test_the_diff_is_one_that_patch_applies(capsys: pytest.CaptureFixture[str]) -> None:
    main([".", *ONLY, "--diff", "--unsafe-fixes", "--output", "change.diff"])
    assert capsys.readouterr().out == ""
    subprocess.run(["git", "apply", "-p0", "change.diff"], check=True, timeout=30)
    assert main([".", *ONLY, "--strict"]) == 0


def test_nothing_to_mend_is_exit_0_and_an_unreadable_file_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unsafe.py", "--diff", *ONLY]) == 0
    assert capsys.readouterr().out == ""
    Path("broken.py").write_text("a = (\n")
    assert main([".", "--diff", *ONLY]) == 2
    assert "+        sampler.set_epoch(epoch)" in capsys.readouterr().out
    assert main([".", "--diff", *ONLY, "--exit-zero"]) == 2


def test_fix_applies_the_safe_ones_and_reports_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    Path("safe.py").chmod(0o750)
    assert main([".", *ONLY, "--fix", "--format", "json"]) == 1
    said = capsys.readouterr()
    assert [finding["code"] for finding in json.loads(said.out)["findings"]] == ["DDP401"]
    assert "fixed 1 finding in 1 file (1 more with --unsafe-fixes)" in said.err
    assert Path("safe.py").read_text().count("sampler.set_epoch(epoch)") == 1
    assert stat.S_IMODE(Path("safe.py").stat().st_mode) == 0o750
    assert Path("unsafe.py").read_text() == UNSAFE
    assert sorted(path.name for path in Path().iterdir()) == ["safe.py", "unsafe.py"]
    before = Path("safe.py").read_text()
    main([".", *ONLY, "--fix"])
    assert Path("safe.py").read_text() == before


def test_unsafe_fixes_are_applied_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([".", *ONLY, "--fix", "--unsafe-fixes", "--strict"]) == 0
    assert "fixed 2 findings in 2 files\n" in capsys.readouterr().err
    assert "model.module(" in Path("unsafe.py").read_text()


def test_a_suppressed_or_known_finding_is_not_mended(capsys: pytest.CaptureFixture[str]) -> None:
    main(["safe.py", *ONLY, "--write-baseline", "known.json"])
    assert main(["safe.py", *ONLY, "--baseline", "known.json", "--diff"]) == 0
    line = "    sampler = DistributedSampler(data)"
    Path("safe.py").write_text(SAFE.replace(line, line + "  # ddp-audit: ignore[DDP302] on purpose"))
    assert main(["safe.py", *ONLY, "--diff"]) == 0


def test_a_refused_fix_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = RULES["DDP112"].bad.replace("= (step + 1) % window == 0", "= bool(loss > 0)", 1)
    Path("flag.py").write_text(text)
    assert main(["flag.py", "--select", "DDP112", "--fix", "--unsafe-fixes"]) == 1
    assert "flag.py:15: DDP112: no automatic fix: what the flag is set to depends on loss" in capsys.readouterr().err
    assert Path("flag.py").read_text() == text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["safe.py", "--unsafe-fixes"], "--fix or --diff"),
        (["safe.py", "--fix", "--diff"], "not allowed with"),
        (["-", "--fix"], "--diff shows"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
