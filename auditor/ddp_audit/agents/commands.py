"""One command of ddp-audit, run in a process of its own, and the JSON that it prints.

A process can be bounded and ended: what a hostile project does to an audit does not reach the server. Its arguments never pass a
shell, it reads no standard input, and the folder that it works in, which may be the audited project, is not where it imports from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

# Python puts the working directory first on the path of `-m` and `-c`; a file there could pose as any module.
_START = "import sys; sys.path[:] = [p for p in sys.path if p]; from ddp_audit.cli import main; sys.exit(main())"
_MOST_OUTPUT = 64_000_000  # bytes


class CommandError(Exception):
    """A command that gave no answer; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Commands:
    """Runs commands. `roots` are the folders whose files may be named; `seconds` is the limit of one command."""

    roots: tuple[Path, ...]
    seconds: float = 120.0

    def path(self, text: str) -> str:
        """Return a path that may be read. Raise CommandError for one outside of the roots."""
        if not text or "\0" in text:
            raise CommandError("an empty text is not a path")
        found = Path(text).resolve()
        if not any(found == root or root in found.parents for root in self.roots):
            shown = ", ".join(map(str, self.roots))
            raise CommandError(f"{text} is outside of {shown}: start the server with --root to let it read more")
        return f"./{text}" if text.startswith("-") else text  # no option, and not standard input

    async def json(self, words: Sequence[str], *, codes: Sequence[int] = (0, 1)) -> dict[str, Any]:
        """Return the object that a command prints. Raise CommandError where it exits with another code, or takes too long."""
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
        try:
            with anyio.fail_after(self.seconds):
                done = await anyio.run_process(
                    [sys.executable, "-c", _START, *words],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=environment,
                )
        except TimeoutError:
            raise CommandError(f"no answer within {self.seconds:g} s; name a single script instead of a folder") from None
        except OSError as error:
            raise CommandError(f"cannot be started: {error.strerror or error}") from None
        said = done.stderr.decode("utf-8", "replace").strip()
        if len(done.stdout) > _MOST_OUTPUT:
            raise CommandError("the answer is too long; name fewer files")
        try:
            document = json.loads(done.stdout)
        except ValueError:
            document = None
        if not isinstance(document, dict) or (done.returncode not in codes and not document):
            last = said.splitlines()[-1] if said else f"exited with {done.returncode}"
            raise CommandError(last.removeprefix("ddp-audit: "))
        return document
