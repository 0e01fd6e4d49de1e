"""Hostile folders: a report or one line, with exit code 0, 1 or 2, in bounded time and memory. A piece as in `test_fuzz.py`."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

from folders import hostile
from hypothesis import given, note, settings
from hypothesis import strategies as st
from test_fuzz import PIECE

from ddp_audit.cli import main

MEMORY = 3 << 30  # of address space, with all that the tests have
SECONDS = 60  # of CPU time
PATIENCE = 900  # seconds in all: on a busy machine a second of CPU takes long
FORMS = (("--format", "text"), ("--format", "json"), ("--format", "html"), ("--export", "perfetto", os.devnull))


@settings(PIECE, max_examples=max(1, PIECE.max_examples // 4))
@given(st.randoms(use_true_random=False))
def test_hostile_folders(random: object) -> None:
    draw = random
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "trace"
        folder.mkdir()
        for what in hostile(folder, draw):  # type: ignore[arg-type]
            note(what)
        form = draw.choice(FORMS)  # type: ignore[attr-defined]
        status, out, err = diff(folder, form, Path(name))
        assert os.WIFEXITED(status), f"ended by signal {os.WTERMSIG(status)} (14 and 24: it took too long): {err}"
        assert os.WEXITSTATUS(status) in (0, 1, 2), err
        assert "internal error" not in err and "Traceback" not in err, err
        assert err.count("\n") <= 1, err
        assert out or err, "nothing is said"


def diff(folder: Path, form: tuple[str, ...], beside: Path) -> tuple[int, str, str]:
    """How `ddp-audit diff` ends in a process of its own, which has bounds, and what it prints."""
    files = [beside / "out", beside / "err"]
    child = os.fork()
    if not child:
        code = 70
        try:
            for number, file in enumerate(files, 1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            signal.alarm(PATIENCE)
            code = _main(["diff", str(folder), *form])
        except BaseException:
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    out, err = (file.read_text("utf-8", "replace") for file in files)
    return status, out, err


def _main(arguments: list[str]) -> int:
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # not those of pytest
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 70
    sys.stdout.flush()
    sys.stderr.flush()
    return code
