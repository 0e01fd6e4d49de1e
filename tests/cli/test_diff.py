"""`diff` at the terminal: lines that fit, and progress while a large trace is read."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from generated_traces import generate

from ddp_audit.cli import main
from ddp_audit.cli.progress import Progress
from ddp_audit.compare.explain import rank_list


@pytest.mark.parametrize("kind", ["reduce-op", "size", "operation", "extra"])
def test_generated_traces_part_where_they_say(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    index = generate(tmp_path, 6, 300, kind, 4)
    assert main(["diff", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert f"Collective {index} of the default group" in said
    assert "rank 4 (odd)" in said
    assert max(len(line) for line in said.splitlines()) <= 80


def test_generated_traces_without_a_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generate(tmp_path, 4, 300, "none", 1)
    assert main(["diff", str(tmp_path)]) == 0
    assert "The 4 ranks agree in" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "json", "html"])
def test_a_dash_as_output_is_standard_output(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    generate(tmp_path / "run", 2, 20, "size", 1)
    assert main(["diff", "../run", "--format", form]) == 1
    expected = capsys.readouterr().out
    assert main(["diff", "../run", "--format", form, "--output", "-"]) == 1
    assert capsys.readouterr().out == expected != ""
    assert not list(Path().iterdir())


def test_on_a_terminal_of_80_columns(tmp_path: Path) -> None:
    folder = tmp_path / ("a-very-long-name-" * 6)
    generate(folder, 3, 300, "size", 1)
    master, slave = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    line = [sys.executable, "-m", "ddp_audit", "diff", str(folder)]
    process = subprocess.Popen(line, stdout=slave, stderr=subprocess.PIPE, env=environment)
    os.close(slave)
    said = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        said += data
    assert process.wait(60) == 1 and process.stderr is not None and process.stderr.read() == b""
    process.stderr.close()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()
    assert "diverged" in lines[0] and max(len(one) for one in lines) <= 80


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def read() -> str:
        progress = Progress("reading the trace")
        for done in range(1, 5):
            now[0] += 0.3
            progress(done, 4)
        progress.end()
        return capsys.readouterr().err

    assert read() == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    said = read()
    assert "reading the trace: 2 of 4 ranks (50 %)" in said and said.endswith("\r\x1b[K")
    monkeypatch.setenv("CI", "true")
    assert read() == ""


def test_scattered_ranks_take_little_room() -> None:
    assert rank_list(range(0, 2000, 2)) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 992 more"
    assert rank_list([*range(5), *range(10, 40, 2)]) == "ranks 0-4, 10, 12, 14, 16, 18, 20, 22 and 8 more"
