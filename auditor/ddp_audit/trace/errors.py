"""The standard error of a traced command: kept in a file of the trace folder, and shown while it grows.

The command writes to the file itself, not to a pipe, so that it lives on unharmed when this process is killed.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_BEAT = 0.05
_BLOCK = 1 << 16


class KeptErrors:
    """A context in which `descriptor` is the file for the command, and what comes to it is copied to standard error."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._reader = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddp-audit-stderr", daemon=True)

    def __enter__(self) -> KeptErrors:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Copies what is left. Processes that outlive the command may write on; that stays in the file."""
        self._ends.set()
        self._thread.join()
        os.close(self._reader)
        os.close(self.descriptor)

    def _run(self) -> None:
        while not self._ends.wait(_BEAT):
            self._copy()
        self._copy()

    def _copy(self) -> None:
        while data := os.read(self._reader, _BLOCK):
            try:
                while data:
                    data = data[os.write(2, data) :]
            except OSError:  # nobody reads our standard error any more; the file has it all
                pass
