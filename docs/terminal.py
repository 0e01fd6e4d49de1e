"""Runs `ddp-audit` at a terminal of a given width, for the pictures and for tests of what people see."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

BARE = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}


def at_terminal(
    words: Sequence[str], folder: Path, columns: int = 80, settings: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and output of `ddp-audit` with these words in a folder, whose output is a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**BARE, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **(settings or {})}
    command = [sys.executable, "-m", "ddp_audit", *words]
    running = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    return running.wait(), b"".join(parts).decode("utf-8").replace("\r\n", "\n")
