"""The line that tells how far an audit has come: on a terminal alone, after a second, and gone at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

# An audit of two scripts, the second of which takes as long as a file is there. The line is shown at once.
SLOW = """\
import sys, time
from pathlib import Path
from ddp_audit import entries
from ddp_audit.cli import main, progress
progress._QUIET_AUDIT, progress._BEAT = 0.01, 0.01
real = entries._audit_entry
def slow(job, entry):
    while entry.path == "two.py" and Path("wait").exists():
        time.sleep(0.01)
    return real(job, entry)
entries._audit_entry = slow
sys.exit(main(["check", ".", "--jobs", "1", "--no-cache", "--format", "text"]))
"""
WIPE = b"\r\x1b[K"


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n")
    (tmp_path / "wait").touch()
    return tmp_path


def start(folder: Path, stderr: int, **environment: str) -> subprocess.Popen[bytes]:
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "TERM")}
    return subprocess.Popen(
        [sys.executable, "-c", SLOW], cwd=folder, env={**clean, **environment}, stdout=subprocess.PIPE, stderr=stderr
    )


def read_until(descriptor: int, wanted: bytes | None) -> bytes:
    """What comes until it holds some bytes, or until the other end is closed."""
    said = b""
    while wanted is None or wanted not in said:
        try:
            more = os.read(descriptor, 4096)
        except OSError:  # Linux, where the last process has closed the terminal
            break
        if not more:
            break
        said += more
    return said


def test_a_terminal_is_told_what_is_at_hand_and_keeps_nothing_of_it(scripts: Path) -> None:
    ours, theirs = pty.openpty()
    process = start(scripts, theirs)
    os.close(theirs)
    said = read_until(ours, b"auditing 1 of 2: two.py")
    assert b"auditing 1 of 2: two.py" in said
    (scripts / "wait").unlink()
    said += read_until(ours, None)
    os.close(ours)
    assert process.stdout is not None
    report = process.stdout.read()
    assert process.wait(60) == 1
    assert report.count(b"DDP201") == 2 and b"auditing" not in report
    assert said.endswith(WIPE) and b"\n" not in said


@pytest.mark.parametrize("environment", [{"CI": "true"}, {"TERM": "dumb"}])
def test_in_ci_and_on_a_dumb_terminal_nothing_is_shown(scripts: Path, environment: dict[str, str]) -> None:
    (scripts / "wait").unlink()
    ours, theirs = pty.openpty()
    process = start(scripts, theirs, **environment)
    os.close(theirs)
    assert read_until(ours, None) == b""
    os.close(ours)
    assert process.stdout is not None and b"DDP201" in process.stdout.read()
    assert process.wait(60) == 1


def test_a_pipe_is_told_nothing(scripts: Path) -> None:
    (scripts / "wait").unlink()
    process = start(scripts, subprocess.PIPE)
    out, err = process.communicate(timeout=60)
    assert b"DDP201" in out and err == b""


def test_a_long_path_is_cut_to_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from ddp_audit.cli.progress import _Line

    _Line().write("auditing 1 of 2: ", "a/" * 60 + "train.py")
    said = capsys.readouterr().err.removeprefix(WIPE.decode())
    assert len(said) == 79 and said.startswith("auditing 1 of 2: ..") and said.endswith("a/train.py")
