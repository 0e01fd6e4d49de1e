"""Sub-runs of the check: a command with a time-out of its own, and a launch under `ddp-audit trace`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = [str(ROOT / name) for name in ("auditor", "rules", "trainer")]
STALL_AFTER = 8.0  # seconds in one collective; a step of the trainer takes milliseconds
_TERM_TIME = 10.0  # seconds from SIGTERM to the end of all processes


@dataclass
class Ended:
    """How a command ended; `code` is None where its time-out ended it."""

    code: int | None
    out: str
    err: str
    seconds: float


@dataclass
class TracedRun:
    """A launch under `ddp-audit trace --format json`: how it ended, the document it printed, and the folder of the trace."""

    ended: Ended
    folder: Path
    document: dict[str, Any] = field(default_factory=dict)


def environment() -> dict[str, str]:
    """The environment of a sub-run: the packages of this checkout, one thread a process."""
    paths = [*PACKAGES, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def run(command: Sequence[str], timeout: float) -> Ended:
    """Runs a command; ends it and its descendants after the time-out."""
    from ddp_audit.trace.processes import kill_tree

    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment()
    )
    code: int | None = None
    try:
        out, err = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.terminate()  # the tracer hands it on to its command
        try:
            out, err = process.communicate(timeout=_TERM_TIME)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid, [])
            out, err = _rest(process)
    return Ended(code, out, err, time.monotonic() - begin)


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a killed process left in its pipes; nothing where a descendant that escaped holds them open."""
    try:
        return process.communicate(timeout=_TERM_TIME)
    except subprocess.TimeoutExpired:
        return "", "its output could not be read to the end"


def traced(words: Sequence[str], *, ranks: int, folder: Path, timeout: float) -> TracedRun:
    """Runs `torchrun WORDS` on so many ranks of this machine under `ddp-audit trace`."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), *words]
    options = ["--format", "json", "--dir", str(folder), "--stall-after", str(STALL_AFTER), "--on-stall", "kill"]
    ended = run([sys.executable, "-m", "ddp_audit", "trace", *options, "--", *launch], timeout)
    try:
        document = json.loads(ended.out)
    except ValueError:
        document = {}
    return TracedRun(ended, folder, document if isinstance(document, dict) else {})


def last_lines(text: str, count: int = 3) -> str:
    """The last lines of an output that say something, on one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-count:])
