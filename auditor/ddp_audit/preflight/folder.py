"""The folder in which launchers and ranks write their state, so that something is known of those that do not come further.

It may be shared by the nodes of a job or be local to each of them. Ages are measured on the file system's own clock.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

_MOST_BYTES = 64 * 2**20
_OLD = 600.0  # seconds after which files of an earlier preflight are removed
JOB, OUTPUT = "job", "output"


class StateFolder:
    """One preflight's files in the folder. `run` names the launcher's own ones; `kind` of a file is `node`, `rank-3` or `job`."""

    def __init__(self, path: str | os.PathLike[str], run: str) -> None:
        self.path = Path(path)
        self.run = run
        self._beat = time.monotonic()

    def make(self) -> None:
        """Makes the folder and removes what earlier preflights left. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        now = self._touch()
        for old in self.path.iterdir():
            with suppress(OSError):
                if _is_ours(old) and now - old.stat().st_mtime > _OLD:
                    old.unlink()

    def file(self, kind: str, suffix: str = "json") -> Path:
        """The path of a file of this run."""
        return self.path / f"preflight-{self.run}-{kind}.{suffix}"

    def write(self, kind: str, document: dict[str, Any]) -> None:
        """Replaces a file of this run. Raises OSError."""
        target = self.file(kind)
        temporary = target.with_suffix(f".{os.getpid()}.{socket.gethostname()}.tmp")
        temporary.write_text(json.dumps(document), encoding="utf-8")
        temporary.replace(target)

    def read(self, kind: str) -> dict[str, Any] | None:
        """A file of this run; None where it is not there yet."""
        return _read(self.file(kind))

    def ranks(self) -> dict[int, dict[str, Any]]:
        """What the ranks of this run wrote, as far as this node sees it."""
        found = {}
        for path in self.path.glob(f"preflight-{self.run}-rank-*.json"):
            rank = path.stem.rpartition("-")[2]
            state = _read(path)
            if state is not None and rank.isdecimal():
                found[int(rank)] = state
        return found

    def beat(self) -> None:
        """Shows, about once a second, that this launcher is still there."""
        now = time.monotonic()
        if now > self._beat + 1.0:
            self._beat = now
            with suppress(OSError):
                os.utime(self.file("node"))

    def other_nodes(self) -> Iterator[dict[str, Any]]:
        """Launchers of other nodes that write into the folder while this one does, or did since this one began."""
        with suppress(OSError):
            began = self.file("begin", "stamp").stat().st_mtime
            for path in sorted(self.path.glob("preflight-*-node.json")):
                if path != self.file("node") and path.stat().st_mtime >= began:
                    state = _read(path)
                    if state is not None:
                        yield state

    def _touch(self) -> float:
        stamp = self.file("begin", "stamp")
        stamp.write_text("", encoding="utf-8")
        return stamp.stat().st_mtime


def _is_ours(path: Path) -> bool:
    return re.fullmatch(r"preflight-[0-9a-f]+-.*\.(json|stamp|log|tmp)", path.name) is not None and not path.is_symlink()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
